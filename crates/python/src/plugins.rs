//! Plugins: classes of Python by `module:object`, shared libraries otherwise.
//!
//! Objects of Python are called with the GIL, by whichever thread pushes or
//! pulls. A selector is called while the client holds the producer's queue, so
//! that whoever takes that lock must have let the GIL go: see
//! `Producer::client_call`.

use pyo3::exceptions::{PyException, PyKeyboardInterrupt, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt};
use std::borrow::Cow;
use std::sync::Arc;
use topic::{
    PartitionSelector, PluginError, PluginRef, Plugins, SelectorError, SelectorInput, Serializer,
    SerializerError, ValidationError, Validator,
};

/// What a driver of Python has.
pub struct PythonPlugins {
    libraries: plugin::Loader,
}

impl PythonPlugins {
    pub fn from_environment() -> Self {
        Self {
            libraries: plugin::Loader::from_environment(),
        }
    }
}

/// An instance of a user's class.
struct Object {
    name: String,
    instance: Py<PyAny>,
}

impl Object {
    fn new(plugin: &PluginRef, role: &str) -> Result<Self, PluginError> {
        let (module, object) = plugin.parts();
        let options = plugin.options_json();
        let make = |py: Python<'_>| {
            let make = py.import("thalweg.plugins")?.getattr("_make")?;
            let made = make.call1((module, object, role, options))?;
            Ok(made.unbind())
        };
        match attached(make) {
            Ok(instance) => Ok(Self {
                name: plugin.name().to_owned(),
                instance,
            }),
            Err(raised) => Err(PluginError::new(plugin, raised.said())),
        }
    }

    fn failed(&self, raised: &Raised) -> String {
        format!("plugin {:?} failed: {}", self.name, raised.said())
    }

    /// What a refusal says, or that the plugin has failed.
    fn refusal(&self, raised: &Raised) -> String {
        match raised {
            Raised::Value(reason) => reason.clone(),
            other => self.failed(other),
        }
    }

    /// Calls a method that returns bytes.
    fn bytes<T>(
        &self,
        method: &str,
        bytes: &[u8],
        take: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, Raised> {
        attached(|py| {
            let argument = PyBytes::new(py, bytes);
            let made = self.instance.bind(py).call_method1(method, (argument,))?;
            let made = made.cast::<PyBytes>().map_err(|_| {
                let found = made.get_type().name();
                let found = found.map_or_else(|_| "?".to_owned(), |name| name.to_string());
                pyo3::exceptions::PyTypeError::new_err(format!(
                    "{method} returns bytes, not {found}"
                ))
            })?;
            Ok(take(made.as_bytes()))
        })
    }
}

/// What a plugin's code has raised.
enum Raised {
    /// A `ValueError`: by that a plugin refuses.
    Value(String),
    /// Anything else, with its class.
    Other(String),
}

impl Raised {
    fn new(py: Python<'_>, error: &PyErr) -> Self {
        let text = error.value(py).to_string();
        // A library's subclass of ValueError (of JSON, of Unicode) is a
        // refusal as well, for what is wrong is the metadata.
        if error.is_instance_of::<PyValueError>(py) {
            return Self::Value(if text.is_empty() {
                "without a reason".to_owned()
            } else {
                text
            });
        }
        if !error.is_instance_of::<PyException>(py)
            && error.is_instance_of::<PyKeyboardInterrupt>(py)
        {
            // It was for the program, not for the plugin.
            // SAFETY: the thread is attached; this only sets a flag.
            unsafe { pyo3::ffi::PyErr_SetInterrupt() };
        }
        let class = error.get_type(py).name();
        let class = class.map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
        Self::Other(match text.as_str() {
            "" => class,
            _ => format!("{class}: {text}"),
        })
    }

    fn said(&self) -> &str {
        match self {
            Self::Value(text) | Self::Other(text) => text,
        }
    }
}

/// Runs Python code on this thread, which may have the GIL or not.
fn attached<T>(run: impl FnOnce(Python<'_>) -> PyResult<T>) -> Result<T, Raised> {
    Python::try_attach(|py| run(py).map_err(|error| Raised::new(py, &error)))
        .unwrap_or_else(|| Err(Raised::Other("the interpreter ends".to_owned())))
}

impl Validator for Object {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        attached(|py| {
            let argument = PyBytes::new(py, metadata);
            let instance = self.instance.bind(py);
            instance.call_method1("validate", (argument,)).map(drop)
        })
        .map_err(|raised| ValidationError::Refused(self.refusal(&raised)))
    }
}

impl PartitionSelector for Object {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        let chosen = attached(|py| {
            let metadata = PyBytes::new(py, input.metadata);
            let key = input.key.map(|key| PyBytes::new(py, key));
            let instance = self.instance.bind(py);
            let chosen = instance.call_method1("select", (metadata, key, partition_count))?;
            let chosen = chosen.cast::<PyInt>().map_err(|_| {
                let text = format!("select returns an int, not {chosen}");
                pyo3::exceptions::PyTypeError::new_err(text)
            })?;
            // One that is negative or huge is out of range all the same.
            Ok(chosen.extract().unwrap_or(u32::MAX))
        });
        chosen.map_err(|raised| SelectorError::Refused(self.refusal(&raised)))
    }
}

impl Serializer for Object {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        self.bytes("serialize", metadata, |bytes| out.extend_from_slice(bytes))
            .map_err(|raised| {
                SerializerError::new(format!("metadata is refused: {}", self.refusal(&raised)))
            })
    }

    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError> {
        self.bytes("deserialize", bytes, <[u8]>::to_vec)
            .map(Cow::Owned)
            .map_err(|raised| SerializerError::new(self.failed(&raised)))
    }
}

impl Plugins for PythonPlugins {
    fn validator(&self, plugin: &PluginRef) -> Result<Arc<dyn Validator>, PluginError> {
        if plugin.is_library() {
            return self.libraries.validator(plugin);
        }
        Ok(Arc::new(Object::new(plugin, "validator")?))
    }

    fn partition_selector(
        &self,
        plugin: &PluginRef,
    ) -> Result<Box<dyn PartitionSelector>, PluginError> {
        if plugin.is_library() {
            return self.libraries.partition_selector(plugin);
        }
        Ok(Box::new(Object::new(plugin, "partition selector")?))
    }

    fn serializer(&self, plugin: &PluginRef) -> Result<Arc<dyn Serializer>, PluginError> {
        if plugin.is_library() {
            return self.libraries.serializer(plugin);
        }
        Ok(Arc::new(Object::new(plugin, "serializer")?))
    }
}
