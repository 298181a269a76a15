//! Keys and headers of events, as users give them.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMapping, PyString};

/// The key and headers of one event.
pub struct Labels {
    key: Option<Vec<u8>>,
    headers: Vec<(String, Vec<u8>)>,
}

impl Labels {
    /// Of a key that is bytes or str, and a dict or a list of pairs of a str
    /// and bytes or str.
    pub fn new(
        key: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            key: key.map(text_or_bytes).transpose()?,
            headers: headers.map(header_pairs).transpose()?.unwrap_or_default(),
        })
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.key.as_deref()
    }

    pub fn headers(&self) -> Vec<(&str, &[u8])> {
        let pairs = self.headers.iter();
        pairs
            .map(|(name, value)| (name.as_str(), value.as_slice()))
            .collect()
    }
}

fn text_or_bytes(value: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    match value.cast::<PyBytes>() {
        Ok(bytes) => Ok(bytes.as_bytes().to_vec()),
        Err(_) => {
            let kind = value.get_type().name()?;
            Err(PyTypeError::new_err(format!(
                "expected bytes or str, not {kind}"
            )))
        }
    }
}

fn header_pairs(headers: &Bound<'_, PyAny>) -> PyResult<Vec<(String, Vec<u8>)>> {
    let pairs = match headers.cast::<PyMapping>() {
        Ok(mapping) => mapping.items()?.into_any(),
        Err(_) => headers.clone(),
    };
    pairs
        .try_iter()?
        .map(|pair| {
            let (name, value): (String, Bound<'_, PyAny>) = pair?.extract()?;
            Ok((name, text_or_bytes(&value)?))
        })
        .collect()
}
