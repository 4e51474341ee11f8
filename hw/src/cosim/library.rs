//! The C interface of a compiled model.

use super::frame::Frame;
use super::tools::CosimError;
use super::verilated::Mode;
use std::ffi::{c_char, c_void, CStr, CString};
use std::path::Path;

type New = unsafe extern "C" fn() -> *mut c_void;
type Delete = unsafe extern "C" fn(*mut c_void);
type Run = unsafe extern "C" fn(*mut c_void, u32, *const u8, *mut u8);

/// One instance of a model in a shared library.
///
/// The library stays loaded: its thread-local data may outlive the model.
pub(super) struct Library {
    model: *mut c_void,
    run: Run,
    delete: Delete,
}

// SAFETY: a model holds no thread-local state between calls, and `&mut self` keeps calls apart.
unsafe impl Send for Library {}

impl Library {
    /// Loads a library that [`super::verilated`] has built, and makes a model.
    pub(super) fn load(file: &Path) -> Result<Self, CosimError> {
        let error = |reason: String| CosimError::Load {
            file: file.display().to_string(),
            reason,
        };
        let path = CString::new(file.as_os_str().as_encoded_bytes())
            .map_err(|source| error(source.to_string()))?;
        // SAFETY: the path is a C string; the library's initialisers are Verilator's own.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(error(last_error()));
        }
        let symbol = |name: &CStr| {
            // SAFETY: the handle comes from `dlopen` and the name is a C string.
            let address = unsafe { libc::dlsym(handle, name.as_ptr()) };
            if address.is_null() {
                Err(error(last_error()))
            } else {
                Ok(address)
            }
        };
        let (new, delete, run) = (
            symbol(c"model_new")?,
            symbol(c"model_delete")?,
            symbol(c"model_run")?,
        );
        // SAFETY: the generated C++ defines the three functions with these signatures.
        let (new, delete, run) = unsafe {
            (
                std::mem::transmute::<*mut c_void, New>(new),
                std::mem::transmute::<*mut c_void, Delete>(delete),
                std::mem::transmute::<*mut c_void, Run>(run),
            )
        };
        // SAFETY: the function takes nothing and returns a model.
        let model = unsafe { new() };
        Ok(Self { model, run, delete })
    }

    /// Evaluates one record. The frames must have the layouts that the model was built for.
    pub(super) fn run(&mut self, mode: Mode, inputs: &Frame, outputs: &mut Frame) {
        // SAFETY: the model lives until `drop`; the C++ reads and writes exactly the bytes of the two layouts.
        unsafe {
            (self.run)(
                self.model,
                mode as u32,
                inputs.bytes.as_ptr(),
                outputs.bytes.as_mut_ptr(),
            )
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the model comes from `model_new` and is not used again.
        unsafe { (self.delete)(self.model) }
    }
}

fn last_error() -> String {
    // SAFETY: `dlerror` returns null or a C string that is valid until the next call on this thread.
    let text: *const c_char = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown error".into();
    }
    // SAFETY: not null, see above.
    unsafe { CStr::from_ptr(text) }
        .to_string_lossy()
        .into_owned()
}
