package ced

// SetFault makes a stream's calls report what f says once they are done, as if they had failed, where it is not nil; nil
// ends that. It is for tests of those who have to cope.
func (s *Stream) SetFault(f func(call string) error) { s.fault = f }
