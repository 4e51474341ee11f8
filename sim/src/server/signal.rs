//! SIGINT and SIGTERM end the program in order.

/// The two signals, blocked so that they can be waited for.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them in this thread and in those that it starts later.
    pub fn block() -> Signals {
        // SAFETY: sigset_t is plain data; the calls only fill it and change this thread's mask.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGINT);
            libc::sigaddset(&mut set, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals(set)
        }
    }

    /// Waits for one of them.
    pub fn wait(&self) {
        let mut signal = 0;
        // SAFETY: the set was initialised by `block`, and `signal` outlives the call.
        while unsafe { libc::sigwait(&self.0, &mut signal) } != 0 {}
    }
}

/// Ends the program in order.
pub fn end_program() {
    // SAFETY: sending a signal to ourselves touches no memory.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGTERM);
    }
}

/// Ends the program when dropped.
pub struct EndOfProgram;

impl Drop for EndOfProgram {
    fn drop(&mut self) {
        end_program();
    }
}
