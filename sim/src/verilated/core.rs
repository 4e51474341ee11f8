//! One Verilated core, behind the C++ of the build script.

use super::Window;
use crate::card::Nic;
use crate::ports::{NicIn, NicOut};
use crate::time::Ps;
use std::ffi::c_void;
use std::path::PathBuf;

extern "C" {
    fn mprdma_core_new() -> *mut c_void;
    fn mprdma_core_free(core: *mut c_void);
    fn mprdma_core_sizes() -> u64;
    fn mprdma_core_step(
        core: *mut c_void,
        input: *const NicIn,
        output: *mut NicOut,
        time: u64,
        period: u64,
    );
    #[cfg(feature = "wave")]
    fn mprdma_core_wave_open(core: *mut c_void, file: *const std::ffi::c_char) -> i32;
    #[cfg(feature = "wave")]
    fn mprdma_core_wave_close(core: *mut c_void);
}

/// A Verilated core.
pub struct Core {
    model: *mut c_void,
    now: Ps,
    period: Ps,
    /// Waveform file and window.
    #[cfg_attr(not(feature = "wave"), allow(dead_code))]
    wave: Option<(PathBuf, Window)>,
}

// SAFETY: the model is a C++ object without thread-local state; only the owner of the `Core` calls it.
unsafe impl Send for Core {}

impl Core {
    /// A core whose clock has the given period, as after power-on. It records waveforms if the build can.
    pub fn new(period: Ps, wave: Option<(PathBuf, Window)>) -> Core {
        let sizes = (size_of::<NicIn>() as u64) << 32 | size_of::<NicOut>() as u64;
        // SAFETY: no arguments, no state.
        assert_eq!(
            unsafe { mprdma_core_sizes() },
            sizes,
            "the port structs of Rust and C++ differ"
        );
        // SAFETY: returns a new object, which `drop` frees.
        Core {
            model: unsafe { mprdma_core_new() },
            now: 0,
            period,
            wave,
        }
    }

    /// Opens the waveform at the start of its window and closes it at the end.
    #[cfg(feature = "wave")]
    fn record(&mut self) {
        let Some((file, window)) = &self.wave else {
            return;
        };
        if self.now >= window.end {
            // SAFETY: the model lives as long as `self`.
            unsafe { mprdma_core_wave_close(self.model) };
            self.wave = None;
        } else if self.now >= window.start && self.now - window.start < self.period {
            let Ok(name) = std::ffi::CString::new(file.as_os_str().as_encoded_bytes()) else {
                return;
            };
            // SAFETY: the model lives as long as `self`, the name until the call returns.
            if unsafe { mprdma_core_wave_open(self.model, name.as_ptr()) } == 0 {
                tracing::error!("cannot write the waveform {}", file.display());
            }
        }
    }
}

impl Nic for Core {
    fn step(&mut self, input: &NicIn, output: &mut NicOut) {
        #[cfg(feature = "wave")]
        self.record();
        self.now += self.period;
        // SAFETY: the model lives as long as `self`; `new` checked that both sides lay the structs out alike.
        unsafe { mprdma_core_step(self.model, input, output, self.now, self.period) }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { mprdma_core_free(self.model) }
    }
}
