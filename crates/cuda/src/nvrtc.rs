//! NVRTC: CUDA C to machine code, at run time, without a toolkit.
//!
//! The library is found like the driver (see [`loader`](crate::loader)); where none of the usual names is on the library
//! path, in the toolkit's folder. `PHONOGRAPH_NVRTC` names the file outright.

use std::env;
use std::ffi::{CString, OsString, c_int};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use libloading::Library;

use crate::error::Version;
use crate::loader::{function, lacks, open, toolkits};
use crate::symbols;

/// Why CUDA C cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NvrtcError {
    /// No library.
    #[error(
        "there is no NVRTC library (it comes with the CUDA toolkit and as nvidia-cuda-nvrtc from PyPI; PHONOGRAPH_NVRTC names the file): {0}"
    )]
    NotFound(String),
    /// A library that lacks a function.
    #[error("the NVRTC library {library} has no function {symbol}")]
    MissingSymbol {
        /// The library's name.
        library: String,
        /// The function.
        symbol: &'static str,
    },
    /// The bindings would use another library than the one that was found.
    #[error(
        "{library} was asked for, but another NVRTC is on the library path and would be used; take it off the path"
    )]
    TwoLibraries {
        /// The library that was found first.
        library: String,
    },
    /// A library whose code the driver may not be able to load.
    #[error(
        "NVRTC {nvrtc} is newer than the driver, which is for CUDA {driver}; a new driver or an older NVRTC is needed"
    )]
    NewerThanDriver {
        /// Version of NVRTC.
        nvrtc: Version,
        /// Version of the driver.
        driver: Version,
    },
    /// A source or option with a zero byte.
    #[error("{0} contains a zero byte")]
    ZeroByte(&'static str),
    /// The source is wrong.
    #[error("the CUDA C of {name} does not compile:\n{log}")]
    Compile {
        /// What the program is called.
        name: String,
        /// What the compiler printed.
        log: String,
    },
    /// NVRTC refused.
    #[error("{call} failed: {result}")]
    Call {
        /// The function called.
        call: &'static str,
        /// NVRTC's name for the error.
        result: String,
    },
}

/// The loaded compiler.
#[derive(Debug)]
pub struct Nvrtc {
    library: String,
    version: Version,
    /// Held so that they stay loaded; the bindings open the library again by its name, and the library its built-ins.
    _handles: (Library, Option<Library>),
}

/// What to compile, and for which device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program<'a> {
    /// For messages.
    pub name: &'a str,
    /// CUDA C.
    pub source: &'a str,
    /// Compute capability: (9, 0) for a Hopper.
    pub capability: (u32, u32),
}

impl Program<'_> {
    /// The options it is compiled with, for machine code or for the assembler. Multiplications and additions are not
    /// contracted, so that expressions give the same bits as on the CPU; kernels that want a fused operation say so.
    pub(crate) fn options(&self, code: Code) -> [String; 3] {
        let (major, minor) = self.capability;
        let architecture = match code {
            Code::Machine => "sm",
            Code::Ptx => "compute",
        };
        [
            format!("--gpu-architecture={architecture}_{major}{minor}"),
            "--std=c++17".to_owned(),
            "--fmad=false".to_owned(),
        ]
    }
}

/// What a program is compiled to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Machine,
    Ptx,
}

impl Nvrtc {
    /// Opens the library, once for the process. Later calls give the same answer.
    ///
    /// # Errors
    /// [`NvrtcError`] says what is missing. Nothing here panics.
    pub fn load() -> Result<&'static Nvrtc, NvrtcError> {
        static NVRTC: OnceLock<Result<Nvrtc, NvrtcError>> = OnceLock::new();
        NVRTC.get_or_init(|| probe(names().into_iter())).as_ref().map_err(Clone::clone)
    }

    /// The name that the library was found by.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// That code compiled here can be loaded by a driver of this version.
    ///
    /// # Errors
    /// [`NvrtcError::NewerThanDriver`].
    pub(crate) fn check_driver(&self, driver: Version) -> Result<(), NvrtcError> {
        refuse_newer(self.version, driver)
    }

    /// Compiles a program to a cubin. Some 20 ms and more.
    ///
    /// # Errors
    /// [`NvrtcError::Compile`] with the compiler's messages.
    pub fn compile(&self, program: &Program<'_>) -> Result<Vec<u8>, NvrtcError> {
        self.compiled(program, Code::Machine)?.cubin()
    }

    /// Compiles a program to PTX, for the driver or another assembler to finish.
    ///
    /// # Errors
    /// As for [`compile`](Self::compile).
    pub fn ptx(&self, program: &Program<'_>) -> Result<String, NvrtcError> {
        self.compiled(program, Code::Ptx)?.ptx()
    }

    fn compiled(&self, program: &Program<'_>, code: Code) -> Result<Compiling, NvrtcError> {
        let zero = |what| move |_| NvrtcError::ZeroByte(what);
        let source = CString::new(program.source).map_err(zero("the source"))?;
        let name = CString::new(program.name).map_err(zero("the program's name"))?;
        let options =
            program.options(code).map(|option| CString::new(option).map_err(zero("an option")));
        let options = options.into_iter().collect::<Result<Vec<_>, _>>()?;
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut handle = ptr::null_mut();
        // SAFETY: both texts are terminated; there are no headers.
        check("nvrtcCreateProgram", unsafe {
            sys::nvrtcCreateProgram(
                &mut handle,
                source.as_ptr(),
                name.as_ptr(),
                0,
                ptr::null(),
                ptr::null(),
            )
        })?;
        let compiling = Compiling(handle);
        // SAFETY: the program lives; the options are terminated and as many as is said.
        let result =
            unsafe { sys::nvrtcCompileProgram(handle, options.len() as c_int, options.as_ptr()) };
        if let Err(error) = check("nvrtcCompileProgram", result) {
            let (name, log) = (program.name.to_owned(), compiling.log()?);
            return Err(if log.is_empty() { error } else { NvrtcError::Compile { name, log } });
        }
        Ok(compiling)
    }
}

fn refuse_newer(nvrtc: Version, driver: Version) -> Result<(), NvrtcError> {
    if nvrtc > driver { Err(NvrtcError::NewerThanDriver { nvrtc, driver }) } else { Ok(()) }
}

/// A program under compilation.
struct Compiling(nvrtcProgram);

impl Compiling {
    fn log(&self) -> Result<String, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program lives.
        check("nvrtcGetProgramLogSize", unsafe { sys::nvrtcGetProgramLogSize(self.0, &mut size) })?;
        let mut log = vec![0u8; size];
        // SAFETY: the buffer is as long as the log.
        check("nvrtcGetProgramLog", unsafe {
            sys::nvrtcGetProgramLog(self.0, log.as_mut_ptr().cast())
        })?;
        Ok(String::from_utf8_lossy(&log).trim_end_matches('\0').trim_end().to_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program lives.
        check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) })?;
        let mut cubin = vec![0u8; size];
        // SAFETY: the buffer is as long as the cubin.
        check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(self.0, cubin.as_mut_ptr().cast()) })?;
        Ok(cubin)
    }

    fn ptx(&self) -> Result<String, NvrtcError> {
        let mut size = 0;
        // SAFETY: the program lives.
        check("nvrtcGetPTXSize", unsafe { sys::nvrtcGetPTXSize(self.0, &mut size) })?;
        let mut ptx = vec![0u8; size];
        // SAFETY: the buffer is as long as the text.
        check("nvrtcGetPTX", unsafe { sys::nvrtcGetPTX(self.0, ptx.as_mut_ptr().cast()) })?;
        Ok(String::from_utf8_lossy(&ptx).trim_end_matches('\0').to_owned())
    }
}

impl Drop for Compiling {
    fn drop(&mut self) {
        // SAFETY: the program is this value's own.
        let result = check("nvrtcDestroyProgram", unsafe { sys::nvrtcDestroyProgram(&mut self.0) });
        if let Err(error) = result {
            tracing::error!(%error, "a handle could not be released");
        }
    }
}

fn check(call: &'static str, result: nvrtcResult) -> Result<(), NvrtcError> {
    if result == nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    Err(NvrtcError::Call { call, result: format!("{result:?}") })
}

/// Where to look, best first.
fn names() -> Vec<OsString> {
    if let Some(named) = env::var_os("PHONOGRAPH_NVRTC") {
        return vec![named];
    }
    let mut names: Vec<OsString> =
        cudarc::get_lib_name_candidates("nvrtc").into_iter().map(OsString::from).collect();
    for toolkit in toolkits() {
        let folder = toolkit.join("lib64");
        let files = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];
        names.extend(files.map(|name| folder.join(name).into()));
    }
    names
}

fn probe(names: impl Iterator<Item = OsString>) -> Result<Nvrtc, NvrtcError> {
    let (library, handle) = open(names).map_err(NvrtcError::NotFound)?;
    if let Some(symbol) = lacks(&handle, symbols::NVRTC.iter().copied()) {
        return Err(NvrtcError::MissingSymbol { library, symbol });
    }
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library has the function, and this is its signature.
    unsafe {
        // The bindings look for the library by name again. One that is loaded already is found by its own name, unless
        // another lies on the path under a name that is tried earlier.
        let theirs: Option<*const ()> =
            if sys::is_culib_present() { function(sys::culib(), "nvrtcVersion") } else { None };
        if theirs != function(&handle, "nvrtcVersion") {
            return Err(NvrtcError::TwoLibraries { library });
        }
        check("nvrtcVersion", sys::nvrtcVersion(&mut major, &mut minor))?;
    }
    let version = Version { major: major.unsigned_abs(), minor: minor.unsigned_abs() };
    let builtins = beside(&library, version)?;
    Ok(Nvrtc { library, version, _handles: (handle, builtins) })
}

/// Of a library that was found by its path, the built-ins beside it: the library itself would look for them on the
/// library path alone.
fn beside(library: &str, version: Version) -> Result<Option<Library>, NvrtcError> {
    let file = Path::new(library).with_file_name(format!("libnvrtc-builtins.so.{version}"));
    if !library.contains('/') || !file.exists() {
        return Ok(None);
    }
    let opened = open([file.into_os_string()].into_iter()).map_err(NvrtcError::NotFound)?;
    Ok(Some(opened.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub::stub;

    #[test]
    fn a_newer_compiler_than_the_driver_is_refused() {
        let [old, new] = [0, 1].map(|minor| Version { major: 13, minor });
        assert_eq!(refuse_newer(old, old), Ok(()));
        assert_eq!(refuse_newer(old, new), Ok(()));
        assert_eq!(
            refuse_newer(new, old).unwrap_err().to_string(),
            "NVRTC 13.1 is newer than the driver, which is for CUDA 13.0; a new driver or an older NVRTC is needed"
        );
    }

    #[test]
    fn a_library_that_is_missing_or_lacks_a_function_is_an_error_that_names_it() {
        let none = ["/nowhere/libnvrtc.so".into()];
        assert!(matches!(probe(none.into_iter()), Err(NvrtcError::NotFound(_))));
        let folder = tempfile::tempdir().unwrap();
        let without = symbols::NVRTC[2];
        let path = stub(folder.path(), symbols::NVRTC, Some(without), &[]);
        let library = path.to_string_lossy().into_owned();
        let error = probe([path].into_iter()).unwrap_err();
        assert_eq!(error, NvrtcError::MissingSymbol { library, symbol: without });
    }

    #[test]
    fn wrong_source_is_an_error_with_the_compilers_words() {
        let nvrtc = match Nvrtc::load() {
            Ok(nvrtc) => nvrtc,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let program = |source| Program { name: "test", source, capability: (9, 0) };
        let right = nvrtc.compile(&program("extern \"C\" __global__ void k(int *p) { *p = 1; }"));
        assert!(right.unwrap().starts_with(b"\x7fELF"));
        let wrong = nvrtc.compile(&program("extern \"C\" __global__ void k(int *p) { *p = q; }"));
        let wrong = wrong.unwrap_err().to_string();
        assert!(wrong.contains("identifier \"q\" is undefined"), "{wrong}");
    }
}
