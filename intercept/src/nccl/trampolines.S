/* One entry point a function of functions.def that is passed on: it jumps to where its slot says, with the caller's
 * arguments and return address. A slot begins with its own resolver, which asks
 * polypath_nccl_find(slot) for the function of the real library, keeps it, and goes on there:
 * arguments in registers, those of floating point too, are saved over it.
 *
 * struct Slot (lookup.cpp): where to jump, the name, the kind. */
#if defined(__x86_64__)

        .macro  PASS name, kind
        .text
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        jmp     *.Lslot_\name(%rip)
.Lresolve_\name:
        endbr64
        lea     .Lslot_\name(%rip), %r11
        jmp     .Lresolve
        .cfi_endproc
        .size   \name, . - \name
        .section .rodata
.Lname_\name:
        .asciz  "\name"
        .section .data.polypath_nccl_slots, "aw"
        .p2align 3
.Lslot_\name:
        .quad   .Lresolve_\name, .Lname_\name, \kind
        .endm

        .text
        .type   .Lresolve, @function
.Lresolve:
        .cfi_startproc
        push    %rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset %rbp, -16
        mov     %rsp, %rbp
        .cfi_def_cfa_register %rbp
        and     $-16, %rsp
        sub     $208, %rsp
        mov     %rdi, (%rsp)
        mov     %rsi, 8(%rsp)
        mov     %rdx, 16(%rsp)
        mov     %rcx, 24(%rsp)
        mov     %r8, 32(%rsp)
        mov     %r9, 40(%rsp)
        mov     %rax, 48(%rsp)
        movaps  %xmm0, 64(%rsp)
        movaps  %xmm1, 80(%rsp)
        movaps  %xmm2, 96(%rsp)
        movaps  %xmm3, 112(%rsp)
        movaps  %xmm4, 128(%rsp)
        movaps  %xmm5, 144(%rsp)
        movaps  %xmm6, 160(%rsp)
        movaps  %xmm7, 176(%rsp)
        mov     %r11, %rdi
        mov     8(%rbp), %rsi
        call    polypath_nccl_find
        mov     %rax, %r11
        mov     (%rsp), %rdi
        mov     8(%rsp), %rsi
        mov     16(%rsp), %rdx
        mov     24(%rsp), %rcx
        mov     32(%rsp), %r8
        mov     40(%rsp), %r9
        mov     48(%rsp), %rax
        movaps  64(%rsp), %xmm0
        movaps  80(%rsp), %xmm1
        movaps  96(%rsp), %xmm2
        movaps  112(%rsp), %xmm3
        movaps  128(%rsp), %xmm4
        movaps  144(%rsp), %xmm5
        movaps  160(%rsp), %xmm6
        movaps  176(%rsp), %xmm7
        mov     %rbp, %rsp
        pop     %rbp
        .cfi_def_cfa %rsp, 8
        jmp     *%r11
        .cfi_endproc

#elif defined(__aarch64__)

        .macro  PASS name, kind
        .text
        .globl  \name
        .type   \name, %function
        .p2align 4
\name:
        hint    #34                     /* bti c */
        adrp    x16, .Lslot_\name
        ldr     x17, [x16, #:lo12:.Lslot_\name]
        br      x17
.Lresolve_\name:
        hint    #36                     /* bti j */
        adrp    x16, .Lslot_\name
        add     x16, x16, #:lo12:.Lslot_\name
        b       .Lresolve
        .size   \name, . - \name
        .section .rodata
.Lname_\name:
        .asciz  "\name"
        .section .data.polypath_nccl_slots, "aw"
        .p2align 3
.Lslot_\name:
        .quad   .Lresolve_\name, .Lname_\name, \kind
        .endm

        .text
        .type   .Lresolve, %function
.Lresolve:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     x0, x16
        mov     x1, x30
        bl      polypath_nccl_find
        mov     x17, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        br      x17
        .cfi_endproc

#endif

        .set    status, 0
        .set    text, 1
        .set    sums, 2
#define POLYPATH_NCCL_PASSED(name, kind) PASS name, kind
#include "nccl/functions.def"

        .section .note.GNU-stack, "", %progbits
