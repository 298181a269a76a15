//! The functions of `libmunge.so.2`, as its header `munge.h` has them, and the calls of them. All `unsafe` of the
//! crate is here: outside there are texts, bytes and numbers that are this process' own.

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};

/// `munge_ctx_t`.
type RawContext = *mut c_void;
/// `time_t` of the hosts that are known.
type Time = c_long;

/// Values of `munge_opt_t`.
const OPT_TTL: c_int = 4;
const OPT_ENCODE_TIME: c_int = 6;
const OPT_SOCKET: c_int = 8;

/// Values of `munge_err_t`.
const SUCCESS: c_int = 0;
pub const SNAFU: c_int = 1;
pub const NO_MEMORY: c_int = 5;
pub const SOCKET: c_int = 6;
pub const TIMEOUT: c_int = 7;
pub const BAD_REALM: c_int = 13;
pub const CRED_EXPIRED: c_int = 15;
pub const CRED_REWOUND: c_int = 16;
pub const CRED_REPLAYED: c_int = 17;

/// The names under which the library is looked for.
const NAMES: [&str; 2] = ["libmunge.so.2", "libmunge.so"];

type Encode = unsafe extern "C" fn(*mut *mut c_char, RawContext, *const c_void, c_int) -> c_int;
type Decode = unsafe extern "C" fn(
    *const c_char,
    RawContext,
    *mut *mut c_void,
    *mut c_int,
    *mut u32,
    *mut u32,
) -> c_int;
type GetOrSet = unsafe extern "C" fn(RawContext, c_int, ...) -> c_int;

/// The library. Its functions count for as long as it does.
pub struct Functions {
    encode: Encode,
    decode: Decode,
    create: unsafe extern "C" fn() -> RawContext,
    destroy: unsafe extern "C" fn(RawContext),
    get: GetOrSet,
    set: GetOrSet,
    context_text: unsafe extern "C" fn(RawContext) -> *const c_char,
    text: unsafe extern "C" fn(c_int) -> *const c_char,
    _library: Library,
}

/// An error of the library: its number, and what it is called.
pub struct Failed {
    pub code: c_int,
    pub text: String,
}

/// What the library takes out of a credential.
pub struct Decoded {
    pub payload: Vec<u8>,
    pub uid: u32,
    pub gid: u32,
    pub made_at: i64,
    pub lasts: i64,
}

unsafe extern "C" {
    /// Of the C library, which allocates what the library gives.
    fn free(memory: *mut c_void);
}

impl Functions {
    /// Loads the library.
    ///
    /// # Errors
    /// What the linker says.
    pub fn load() -> Result<Self, String> {
        let mut why = String::new();
        for name in NAMES {
            // SAFETY: the initialisers of libmunge do nothing that others see.
            match unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) } {
                Ok(library) => return Self::of(library),
                Err(error) if why.is_empty() => why = error.to_string(),
                Err(_) => {}
            }
        }
        Err(why)
    }

    fn of(library: Library) -> Result<Self, String> {
        /// A function of the library by its name and type.
        ///
        /// # Safety
        /// The type is that of the header.
        unsafe fn find<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
            // SAFETY: the caller's.
            let found = unsafe { library.get::<T>(name.as_bytes()) };
            Ok(*found.map_err(|error| error.to_string())?)
        }
        // SAFETY: each type is that of munge.h, which has not changed since version 0.5.
        unsafe {
            Ok(Self {
                encode: find(&library, "munge_encode")?,
                decode: find(&library, "munge_decode")?,
                create: find(&library, "munge_ctx_create")?,
                destroy: find(&library, "munge_ctx_destroy")?,
                get: find(&library, "munge_ctx_get")?,
                set: find(&library, "munge_ctx_set")?,
                context_text: find(&library, "munge_ctx_strerror")?,
                text: find(&library, "munge_strerror")?,
                _library: library,
            })
        }
    }
}

/// What one call is about. Used by one thread, and destroyed when it is dropped.
pub struct Context<'a> {
    functions: &'a Functions,
    raw: RawContext,
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: it is this one's, and nobody has it afterwards.
        unsafe { (self.functions.destroy)(self.raw) }
    }
}

impl<'a> Context<'a> {
    /// One for the daemon that listens at `socket`, or where the library thinks.
    ///
    /// # Errors
    /// If the library has none to give, or does not take the name.
    pub fn new(functions: &'a Functions, socket: Option<&CStr>) -> Result<Self, Failed> {
        // SAFETY: it takes nothing, and gives NULL or a context that is this one's.
        let raw = unsafe { (functions.create)() };
        if raw.is_null() {
            let text = "it gives no context".to_owned();
            let code = NO_MEMORY;
            return Err(Failed { code, text });
        }
        let context = Self { functions, raw };
        if let Some(socket) = socket {
            // SAFETY: the option takes a text, which ends, and is copied.
            let code = unsafe { (functions.set)(raw, OPT_SOCKET, socket.as_ptr()) };
            context.check(code)?;
        }
        Ok(context)
    }

    /// A credential with this payload.
    ///
    /// # Errors
    /// The library's.
    pub fn encode(&self, payload: &[u8]) -> Result<Vec<u8>, Failed> {
        let length = c_int::try_from(payload.len()).unwrap_or(c_int::MAX);
        let mut text: *mut c_char = std::ptr::null_mut();
        // SAFETY: the payload is as long as is said, or longer; the text is given away on success alone, and stays
        // NULL else.
        let code = unsafe {
            let payload = payload.as_ptr().cast::<c_void>();
            (self.functions.encode)(&raw mut text, self.raw, payload, length)
        };
        let given = Given(text.cast::<c_void>());
        self.check(code)?;
        if given.0.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: it succeeded, so that this is a text that ends, and it is copied before it is freed.
        let text = unsafe { CStr::from_ptr(given.0.cast::<c_char>()) };
        Ok(text.to_bytes().to_vec())
    }

    /// What is in a credential; of its payload `bytes_max` at most, else the length is none that can be.
    ///
    /// # Errors
    /// The library's, or that the payload is longer.
    pub fn decode(&self, text: &CStr, bytes_max: usize) -> Result<Decoded, Failed> {
        let (mut memory, mut length) = (std::ptr::null_mut(), 0);
        let (mut uid, mut gid) = (u32::MAX, u32::MAX);
        // SAFETY: the text ends; the library writes to the places that it is given, and gives memory away also with
        // some errors.
        let code = unsafe {
            (self.functions.decode)(
                text.as_ptr(),
                self.raw,
                &raw mut memory,
                &raw mut length,
                &raw mut uid,
                &raw mut gid,
            )
        };
        let given = Given(memory);
        self.check(code)?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            let text = format!("its payload has more than {bytes_max} bytes");
            return Err(Failed { code, text });
        }
        let (mut made_at, mut lasts): (Time, c_int) = (0, 0);
        // SAFETY: munge.h names these types for these options.
        let code = unsafe { (self.functions.get)(self.raw, OPT_ENCODE_TIME, &raw mut made_at) };
        self.check(code)?;
        // SAFETY: as above.
        let code = unsafe { (self.functions.get)(self.raw, OPT_TTL, &raw mut lasts) };
        self.check(code)?;
        let payload = match given.0.is_null() {
            true => Vec::new(),
            // SAFETY: it succeeded, so that there are as many bytes as the library says; they are copied before they
            // are freed.
            false => unsafe { std::slice::from_raw_parts(given.0.cast::<u8>(), length) }.to_vec(),
        };
        Ok(Decoded {
            payload,
            uid,
            gid,
            made_at,
            lasts: lasts.into(),
        })
    }

    fn check(&self, code: c_int) -> Result<(), Failed> {
        match code {
            SUCCESS => Ok(()),
            code => Err(Failed {
                code,
                text: self.describe(code),
            }),
        }
    }

    /// What an error is called.
    fn describe(&self, code: c_int) -> String {
        // SAFETY: both give NULL or a text that stays as it is until the next call with the context.
        let text = unsafe {
            let of_context = (self.functions.context_text)(self.raw);
            match of_context.is_null() {
                true => (self.functions.text)(code),
                false => of_context,
            }
        };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not NULL, and the library ends its texts.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

/// Memory that the library has given away.
struct Given(*mut c_void);

impl Drop for Given {
    fn drop(&mut self) {
        // SAFETY: it came from malloc, and nobody else has it; NULL is allowed.
        unsafe { free(self.0) }
    }
}
