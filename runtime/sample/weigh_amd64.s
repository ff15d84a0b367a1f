#include "textflag.h"

// weight's constants, four times each: see exp.go.
DATA smallest<>+0(SB)/8, $0xc086200000000000
DATA smallest<>+8(SB)/8, $0xc086200000000000
DATA smallest<>+16(SB)/8, $0xc086200000000000
DATA smallest<>+24(SB)/8, $0xc086200000000000
GLOBL smallest<>(SB), RODATA|NOPTR, $32
DATA steps<>+0(SB)/8, $0x40471547652b82fe
DATA steps<>+8(SB)/8, $0x40471547652b82fe
DATA steps<>+16(SB)/8, $0x40471547652b82fe
DATA steps<>+24(SB)/8, $0x40471547652b82fe
GLOBL steps<>(SB), RODATA|NOPTR, $32
DATA half<>+0(SB)/8, $0x3fe0000000000000
DATA half<>+8(SB)/8, $0x3fe0000000000000
DATA half<>+16(SB)/8, $0x3fe0000000000000
DATA half<>+24(SB)/8, $0x3fe0000000000000
GLOBL half<>(SB), RODATA|NOPTR, $32
DATA hi<>+0(SB)/8, $0x3f962e42fec00000
DATA hi<>+8(SB)/8, $0x3f962e42fec00000
DATA hi<>+16(SB)/8, $0x3f962e42fec00000
DATA hi<>+24(SB)/8, $0x3f962e42fec00000
GLOBL hi<>(SB), RODATA|NOPTR, $32
DATA lo<>+0(SB)/8, $0x3dad1cf79abc9e3b
DATA lo<>+8(SB)/8, $0x3dad1cf79abc9e3b
DATA lo<>+16(SB)/8, $0x3dad1cf79abc9e3b
DATA lo<>+24(SB)/8, $0x3dad1cf79abc9e3b
GLOBL lo<>(SB), RODATA|NOPTR, $32
DATA c720<>+0(SB)/8, $0x3f56c16c16c16c17
DATA c720<>+8(SB)/8, $0x3f56c16c16c16c17
DATA c720<>+16(SB)/8, $0x3f56c16c16c16c17
DATA c720<>+24(SB)/8, $0x3f56c16c16c16c17
GLOBL c720<>(SB), RODATA|NOPTR, $32
DATA c120<>+0(SB)/8, $0x3f81111111111111
DATA c120<>+8(SB)/8, $0x3f81111111111111
DATA c120<>+16(SB)/8, $0x3f81111111111111
DATA c120<>+24(SB)/8, $0x3f81111111111111
GLOBL c120<>(SB), RODATA|NOPTR, $32
DATA c24<>+0(SB)/8, $0x3fa5555555555555
DATA c24<>+8(SB)/8, $0x3fa5555555555555
DATA c24<>+16(SB)/8, $0x3fa5555555555555
DATA c24<>+24(SB)/8, $0x3fa5555555555555
GLOBL c24<>(SB), RODATA|NOPTR, $32
DATA c6<>+0(SB)/8, $0x3fc5555555555555
DATA c6<>+8(SB)/8, $0x3fc5555555555555
DATA c6<>+16(SB)/8, $0x3fc5555555555555
DATA c6<>+24(SB)/8, $0x3fc5555555555555
GLOBL c6<>(SB), RODATA|NOPTR, $32
DATA lowest<>+0(SB)/8, $0x0000001f0000001f
DATA lowest<>+8(SB)/8, $0x0000001f0000001f
GLOBL lowest<>(SB), RODATA|NOPTR, $16
DATA bias<>+0(SB)/8, $0x000003ff000003ff
DATA bias<>+8(SB)/8, $0x000003ff000003ff
GLOBL bias<>(SB), RODATA|NOPTR, $16

// func weighAVX2(out *float64, logits *float32, n int, top, scale float64)
// The operations of weight in its order, none of them fused.
TEXT ·weighAVX2(SB), NOSPLIT, $0-40
	MOVQ         out+0(FP), DI
	MOVQ         logits+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSD top+24(FP), Y15
	VBROADCASTSD scale+32(FP), Y14
	LEAQ         ·exp2Steps(SB), R8

weigh:
	VCVTPS2PD   (SI), Y0
	VSUBPD      Y15, Y0, Y0
	VMULPD      Y14, Y0, Y0              // x
	VCMPPD      $0x0D, smallest<>(SB), Y0, Y13 // x >= smallest
	VMULPD      steps<>(SB), Y0, Y1
	VSUBPD      half<>(SB), Y1, Y1
	VCVTTPD2DQY Y1, X2                   // k
	VCVTDQ2PD   X2, Y3
	VMULPD      hi<>(SB), Y3, Y4
	VSUBPD      Y4, Y0, Y5
	VMULPD      lo<>(SB), Y3, Y4
	VSUBPD      Y4, Y5, Y5               // r
	VMULPD      c720<>(SB), Y5, Y6
	VADDPD      c120<>(SB), Y6, Y6
	VMULPD      Y5, Y6, Y6
	VADDPD      c24<>(SB), Y6, Y6
	VMULPD      Y5, Y6, Y6
	VADDPD      c6<>(SB), Y6, Y6
	VMULPD      Y5, Y6, Y6
	VADDPD      half<>(SB), Y6, Y6
	VMULPD      Y5, Y5, Y7
	VMULPD      Y6, Y7, Y7
	VADDPD      Y7, Y5, Y6               // p
	VPAND       lowest<>(SB), X2, X8
	VPCMPEQD    Y9, Y9, Y9
	VGATHERDPD  Y9, (R8)(X8*8), Y10      // t
	VPSRAD      $5, X2, X8
	VPADDD      bias<>(SB), X8, X8
	VPMOVSXDQ   X8, Y8
	VPSLLQ      $52, Y8, Y8              // 2^(k >> 5)
	VMULPD      Y6, Y10, Y7
	VADDPD      Y7, Y10, Y7
	VMULPD      Y8, Y7, Y7
	VANDPD      Y13, Y7, Y7
	VMOVUPD     Y7, (DI)
	ADDQ        $16, SI
	ADDQ        $32, DI
	SUBQ        $4, CX
	JNZ         weigh
	VZEROUPPER
	RET

// func scanAVX2(logits *float32, n int, largest *[8]float32) (bad bool)
TEXT ·scanAVX2(SB), NOSPLIT, $0-25
	MOVQ         logits+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVQ         largest+16(FP), DI
	MOVL         $0x7F800000, AX
	MOVQ         AX, X2
	VPBROADCASTD X2, Y2
	MOVL         $0xFF800000, AX
	MOVQ         AX, X0
	VPBROADCASTD X0, Y0
	VXORPS       Y1, Y1, Y1

scan:
	VMOVUPS    (SI), Y3
	VCMPPS     $0x15, Y2, Y3, Y4 // not below +Inf
	VORPS      Y4, Y1, Y1
	VMAXPS     Y3, Y0, Y0
	ADDQ       $32, SI
	SUBQ       $8, CX
	JNZ        scan
	VMOVUPS    Y0, (DI)
	VMOVMSKPS  Y1, AX
	TESTL      AX, AX
	SETNE      bad+24(FP)
	VZEROUPPER
	RET
