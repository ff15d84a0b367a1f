// driver.h: NVIDIA's driver, a library that is found at run time or not at all.
#pragma once
#include "internal.h"

namespace ced {

// Loads the driver's library if it can be found, so that the CUDA runtime finds it too. Once.
void load_driver();

// Why there is no device: what the library says when it is asked itself. runtime is the version of the CUDA runtime of
// this build (12040 is 12.4), said its own words for it. Always CED_ENODEV.
int driver_fault(int runtime, const char *said, ced_err *err);

}  // namespace ced
