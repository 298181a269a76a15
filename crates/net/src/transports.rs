//! Which transport an address belongs to.

use crate::address;
use crate::contract::*;
use memory::{Allocation, Buffer};
use std::sync::Arc;

/// Transports by the scheme of their addresses. Cloning shares them.
#[derive(Clone, Default)]
pub struct Transports {
    table: Vec<Arc<dyn Transport>>,
}

impl Transports {
    /// A table without any.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same table with `transport` in it, in place of one of its scheme.
    pub fn with(mut self, transport: impl Transport + 'static) -> Self {
        self.register(Arc::new(transport));
        self
    }

    /// Puts `transport` into the table, in place of one of its scheme.
    pub fn register(&mut self, transport: Arc<dyn Transport>) {
        self.table
            .retain(|other| other.scheme() != transport.scheme());
        self.table.push(transport);
    }

    /// The schemes that are known, in the order in which they were registered.
    pub fn schemes(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.table.iter().map(|transport| transport.scheme())
    }

    /// As [`Transport::connect`], by whom the address belongs to.
    ///
    /// # Errors
    /// [`NetError::Address`] naming the known schemes, or the transport's own.
    pub fn connect(&self, address: &str) -> Result<Box<dyn Link>, NetError> {
        self.find(address)?.connect(address)
    }

    /// As [`Transport::connect_as`], by whom the address belongs to.
    ///
    /// # Errors
    /// As [`Transports::connect`].
    pub fn connect_as(
        &self,
        address: &str,
        certificate: Option<&[u8]>,
    ) -> Result<Box<dyn Link>, NetError> {
        self.find(address)?.connect_as(address, certificate)
    }

    /// As [`Transport::listen`], by whom the address belongs to.
    ///
    /// # Errors
    /// As [`Transports::connect`].
    pub fn listen(&self, address: &str) -> Result<Box<dyn Listener>, NetError> {
        self.find(address)?.listen(address)
    }

    /// As [`Transport::check`], by whom the address belongs to.
    ///
    /// # Errors
    /// As [`Transports::connect`].
    pub fn check(&self, address: &str) -> Result<(), NetError> {
        self.find(address)?.check(address)
    }

    /// Memory for what is to be sent to `address`: of its transport, if that
    /// has any that is better than ordinary memory.
    pub fn allocate(&self, address: &str, bytes: usize) -> Allocation {
        self.try_allocate(address, bytes)
            .unwrap_or_else(|| Buffer::zeroed(bytes).into())
    }

    /// As [`Transports::allocate`], and `None` in place of ordinary memory.
    pub fn try_allocate(&self, address: &str, bytes: usize) -> Option<Allocation> {
        self.find(address).ok()?.allocate(bytes)
    }

    fn find(&self, address: &str) -> Result<&dyn Transport, NetError> {
        let (scheme, _) = address::split(address)?;
        let found = self
            .table
            .iter()
            .find(|transport| transport.scheme() == scheme);
        found.map(|transport| &**transport).ok_or_else(|| {
            let known: Vec<_> = self.schemes().map(|known| format!("{known}://")).collect();
            NetError::Address(format!(
                "{address}: no transport for {scheme}://, known are {}",
                known.join(", ")
            ))
        })
    }
}

impl std::fmt::Debug for Transports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.schemes()).finish()
    }
}
