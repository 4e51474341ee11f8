//! One Verilated core, behind the C++ of the build script.

use super::Window;
use crate::card::Nic;
use crate::ports::{NicIn, NicOut};
use crate::time::Ps;
use std::ffi::{c_char, c_void};
use std::path::PathBuf;

/// What the C++ of one core offers; `build/shim.rs` prints the other side of it.
#[repr(C)]
pub struct Api {
    input_bytes: u64,
    output_bytes: u64,
    create: unsafe extern "C" fn() -> *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void),
    step: unsafe extern "C" fn(*mut c_void, *const NicIn, *mut NicOut, u64, u64),
    #[cfg_attr(not(feature = "wave"), allow(dead_code))]
    wave_open: unsafe extern "C" fn(*mut c_void, *const c_char) -> i32,
    #[cfg_attr(not(feature = "wave"), allow(dead_code))]
    wave_close: unsafe extern "C" fn(*mut c_void),
}

extern "C" {
    fn mprdma_core_api() -> *const Api;
    #[cfg(feature = "l64")]
    fn mprdma_core_l64_api() -> *const Api;
}

/// The core whose reorder bitmap has so many slots, if this build has it.
pub fn api(slots: usize) -> Option<&'static Api> {
    let api = match slots {
        // SAFETY: no arguments, no state.
        128 => unsafe { mprdma_core_api() },
        #[cfg(feature = "l64")]
        // SAFETY: no arguments, no state.
        64 => unsafe { mprdma_core_l64_api() },
        _ => return None,
    };
    // SAFETY: a constant of the linked library.
    let api = unsafe { &*api };
    assert_eq!(
        (api.input_bytes, api.output_bytes),
        (size_of::<NicIn>() as u64, size_of::<NicOut>() as u64),
        "the port structs of Rust and C++ differ"
    );
    Some(api)
}

/// A Verilated core.
pub struct Core {
    api: &'static Api,
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
    pub fn new(api: &'static Api, period: Ps, wave: Option<(PathBuf, Window)>) -> Core {
        Core {
            api,
            // SAFETY: returns a new object, which `drop` frees.
            model: unsafe { (api.create)() },
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
            unsafe { (self.api.wave_close)(self.model) };
            self.wave = None;
        } else if self.now >= window.start && self.now - window.start < self.period {
            let Ok(name) = std::ffi::CString::new(file.as_os_str().as_encoded_bytes()) else {
                return;
            };
            // SAFETY: the model lives as long as `self`, the name until the call returns.
            if unsafe { (self.api.wave_open)(self.model, name.as_ptr()) } == 0 {
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
        // SAFETY: the model lives as long as `self`; `api` checked that both sides lay the structs out alike.
        unsafe { (self.api.step)(self.model, input, output, self.now, self.period) }
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { (self.api.destroy)(self.model) }
    }
}
