// Apple's way to send a message by a plain call, for hosts in C and C++ (metal-cpp is such a one):
// objc_msgSend finds the method by GCC's runtime and jumps to it with all arguments as they came.
#if defined(__x86_64__)

// Integer arguments, al (the number of vector arguments of a variadic call), vector arguments.
// Exceptions of the lookup (out of +initialize) unwind through here.
asm(R"(
.macro hm_send name, self, op
  .globl \name
  .type \name, @function
\name:
  .cfi_startproc
  testq %\self, %\self
  je 1f
  pushq %rbp
  .cfi_def_cfa_offset 16
  .cfi_offset %rbp, -16
  movq %rsp, %rbp
  .cfi_def_cfa_register %rbp
  subq $192, %rsp
  movq %rax, (%rsp)
  movq %rdi, 8(%rsp)
  movq %rsi, 16(%rsp)
  movq %rdx, 24(%rsp)
  movq %rcx, 32(%rsp)
  movq %r8, 40(%rsp)
  movq %r9, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  movq %\self, %rdi
  movq %\op, %rsi
  call objc_msg_lookup@PLT
  movq %rax, %r11
  movq (%rsp), %rax
  movq 8(%rsp), %rdi
  movq 16(%rsp), %rsi
  movq 24(%rsp), %rdx
  movq 32(%rsp), %rcx
  movq 40(%rsp), %r8
  movq 48(%rsp), %r9
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  leave
  .cfi_def_cfa %rsp, 8
  jmp *%r11
1:
  xorl %eax, %eax
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
  .cfi_endproc
  .size \name, . - \name
.endm

.text
.p2align 4
hm_send objc_msgSend, rdi, rsi
.p2align 4
hm_send objc_msgSend_stret, rsi, rdx
.globl objc_msgSend_fpret
.set objc_msgSend_fpret, objc_msgSend
)");

#elif defined(__aarch64__)

// x8 is where a struct goes: there is no _stret.
asm(R"(
.text
.p2align 4
.globl objc_msgSend
.type objc_msgSend, %function
objc_msgSend:
  .cfi_startproc
  cbz x0, 1f
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  .cfi_def_cfa_register x29
  sub sp, sp, #208
  stp x0, x1, [sp]
  stp x2, x3, [sp, #16]
  stp x4, x5, [sp, #32]
  stp x6, x7, [sp, #48]
  str x8, [sp, #64]
  stp q0, q1, [sp, #80]
  stp q2, q3, [sp, #112]
  stp q4, q5, [sp, #144]
  stp q6, q7, [sp, #176]
  bl objc_msg_lookup
  mov x16, x0
  ldp x0, x1, [sp]
  ldp x2, x3, [sp, #16]
  ldp x4, x5, [sp, #32]
  ldp x6, x7, [sp, #48]
  ldr x8, [sp, #64]
  ldp q0, q1, [sp, #80]
  ldp q2, q3, [sp, #112]
  ldp q4, q5, [sp, #144]
  ldp q6, q7, [sp, #176]
  mov sp, x29
  ldp x29, x30, [sp], #16
  .cfi_def_cfa sp, 0
  .cfi_restore x29
  .cfi_restore x30
  br x16
1:
  mov x1, #0
  movi v0.2d, #0
  movi v1.2d, #0
  movi v2.2d, #0
  movi v3.2d, #0
  ret
  .cfi_endproc
  .size objc_msgSend, . - objc_msgSend
)");

#endif
