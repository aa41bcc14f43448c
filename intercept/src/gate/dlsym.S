/* void* dlsym(void* handle, const char* name)
 *
 * Asks polypath_shim_lookup(handle, name, caller) for a replacement; without one it jumps to the loader's own
 * dlsym with the caller's arguments and return address, because RTLD_NEXT and RTLD_DEFAULT mean something
 * that depends on who asks. The answer 1 means that there is no such function: null for the caller.
 *
 * libpolypath_nccl.so is built with this file, too, under names of its own. */
#if defined(__x86_64__)
        .text
        .globl  dlsym
        .type   dlsym, @function
dlsym:
        .cfi_startproc
        endbr64
        push    %rdi
        .cfi_adjust_cfa_offset 8
        push    %rsi
        .cfi_adjust_cfa_offset 8
        sub     $8, %rsp
        .cfi_adjust_cfa_offset 8
        mov     24(%rsp), %rdx
        call    polypath_shim_lookup
        add     $8, %rsp
        .cfi_adjust_cfa_offset -8
        pop     %rsi
        .cfi_adjust_cfa_offset -8
        pop     %rdi
        .cfi_adjust_cfa_offset -8
        cmp     $1, %rax
        jae     1f
        jmp     *polypath_shim_real_dlsym(%rip)
1:      jne     2f
        xor     %eax, %eax
2:      ret
        .cfi_endproc
        .size   dlsym, . - dlsym
#elif defined(__aarch64__)
        .text
        .globl  dlsym
        .type   dlsym, %function
dlsym:
        .cfi_startproc
        hint    #34                     /* bti c */
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        stp     x0, x1, [sp, #16]
        mov     x29, sp
        mov     x2, x30
        bl      polypath_shim_lookup
        mov     x9, x0
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        cbnz    x9, 1f
        adrp    x16, polypath_shim_real_dlsym
        ldr     x16, [x16, #:lo12:polypath_shim_real_dlsym]
        br      x16
1:      cmp     x9, #1
        csel    x0, xzr, x9, eq
        ret
        .cfi_endproc
        .size   dlsym, . - dlsym
#endif
        .section .note.GNU-stack, "", %progbits
