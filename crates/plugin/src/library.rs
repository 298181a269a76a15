//! Shared libraries: where they are looked for, and what they export.

use crate::abi::{ABI_VERSION, GetTable, SYMBOL_PREFIX, Table, TableHead};
use crate::foreign::{Instance, Role};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topic::{PartitionSelector, PluginError, PluginRef, Plugins, Serializer, Validator};

/// Directories with plugins, with `:` between them.
pub const PATH_VARIABLE: &str = "THALWEG_PLUGIN_PATH";

/// Loads plugins from shared libraries: those in its directories first, in
/// their order, then those that the system finds by their name.
///
/// Loading a library runs its code, with the rights of this process. Which
/// libraries can be loaded is decided by the search path alone, for the name
/// comes with a topic, from its maker.
///
/// Libraries are never unloaded: threads of theirs may still run.
#[derive(Debug, Clone)]
pub struct Loader {
    directories: Vec<PathBuf>,
}

impl Loader {
    /// A loader for these directories and the system's.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        Self {
            directories: directories.into_iter().collect(),
        }
    }

    /// A loader for the directories that [`PATH_VARIABLE`] names now.
    pub fn from_environment() -> Self {
        let named = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
        Self::new(std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty()))
    }

    fn load(&self, plugin: &PluginRef, role: Role) -> Result<Instance, PluginError> {
        let refuse = |reason: String| PluginError::new(plugin, reason);
        let (name, file) = plugin.parts();
        if !plugin.is_library() {
            return Err(refuse(
                "it is an object of Python; this client loads shared libraries (NAME.so)".into(),
            ));
        }
        let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_identifier {
            return Err(refuse(format!(
                "{name:?} is no name in C, so no library offers it"
            )));
        }
        let (library, place) = self.open(file).map_err(refuse)?;
        let inside = |reason: String| PluginError::new(plugin, format!("in {place}: {reason}"));
        let table = table_of(&library, name);
        // Never unloaded, also if it is not what was looked for: its
        // constructors may have left something behind.
        std::mem::forget(library);
        let table = table.map_err(inside)?;
        Instance::new(plugin, table, role).map_err(inside)
    }

    fn open(&self, file: &str) -> Result<(Library, String), String> {
        let flags = RTLD_NOW | RTLD_LOCAL;
        // SAFETY: this runs the library's constructors. That they may be run
        // is what the user says by the search path.
        let open = |path: &Path| unsafe { Library::open(Some(path), flags) };
        for directory in &self.directories {
            let path = directory.join(file);
            if path.is_file() {
                let place = path.display().to_string();
                return match open(&path) {
                    Ok(library) => Ok((library, place)),
                    Err(error) => Err(format!("it can't be loaded: {}", said(&error))),
                };
            }
        }
        match open(Path::new(file)) {
            Ok(library) => Ok((library, file.to_owned())),
            Err(error) => {
                let directories: Vec<_> = self.directories.iter().map(OsString::from).collect();
                let looked = match directories.len() {
                    0 => format!("{PATH_VARIABLE} names no directories"),
                    _ => {
                        let shown = directories.join(OsString::from(":").as_os_str());
                        format!("it is not in {}", shown.to_string_lossy())
                    }
                };
                Err(format!(
                    "{looked}, and the system does not find it: {}",
                    said(&error)
                ))
            }
        }
    }
}

/// What the dynamic linker says.
fn said(error: &libloading::Error) -> String {
    use std::error::Error;
    error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string)
}

/// The table that a library exports for a plugin, checked.
fn table_of(library: &Library, name: &str) -> Result<&'static Table, String> {
    let symbol = format!("{SYMBOL_PREFIX}{name}");
    // SAFETY: a symbol with this prefix is a function of this type: that is
    // what the header says to those who export one.
    let get = unsafe { library.get::<GetTable>(symbol.as_bytes()) };
    let get = get.map_err(|_| {
        format!("there is no {symbol}; is it exported, with THALWEG_EXPORT_PLUGIN, as {name:?}?")
    })?;
    // SAFETY: as above.
    let table = unsafe { get() };
    if table.is_null() || !table.is_aligned() {
        return Err(format!("{symbol} returns no table"));
    }
    // SAFETY: every version of the table begins with this.
    let head = unsafe { *table.cast::<TableHead>() };
    if head.abi_version != ABI_VERSION {
        return Err(format!(
            "{name:?} was built for version {} of plugin.h; this client has version {ABI_VERSION}",
            head.abi_version
        ));
    }
    if head.table_bytes as usize != size_of::<Table>() {
        return Err(format!(
            "the table of {name:?} has {} bytes, expected {}",
            head.table_bytes,
            size_of::<Table>()
        ));
    }
    // SAFETY: it is of the version and size that this type has. Tables live as
    // long as their library, and that is never unloaded.
    Ok(unsafe { &*table })
}

impl Plugins for Loader {
    fn validator(&self, plugin: &PluginRef) -> Result<Arc<dyn Validator>, PluginError> {
        Ok(Arc::new(self.load(plugin, Role::Validator)?))
    }

    fn partition_selector(
        &self,
        plugin: &PluginRef,
    ) -> Result<Box<dyn PartitionSelector>, PluginError> {
        Ok(Box::new(self.load(plugin, Role::PartitionSelector)?))
    }

    fn serializer(&self, plugin: &PluginRef) -> Result<Arc<dyn Serializer>, PluginError> {
        Ok(Arc::new(self.load(plugin, Role::Serializer)?))
    }
}
