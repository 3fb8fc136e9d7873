//! Memory that models leave behind.

/// Gives what the allocator keeps for later back to the system. glibc keeps what ended workers had freed in the arenas
/// of their threads, so that a server grows with every reload until all arenas have been used.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    #[allow(unsafe_code)] // Sound: it takes no pointer and may be called at any time, from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
