//! How much one virtual host holds.

/// Bounds of one virtual host. Each refuses with a text that says the bound.
///
/// They hold for what is declared from now on: what a log has is recovered whatever they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Queues, those that are being declared too: 65,536.
    pub queues_max: usize,
    /// Exchanges, likewise: 16,384. The seven that are always there do not count.
    pub exchanges_max: usize,
    /// Bindings of all exchanges, likewise: 1,048,576. The default exchange needs none.
    pub bindings_max: usize,
    /// Bytes of the arguments of one queue, exchange or binding: 16 KiB.
    pub argument_bytes_max: usize,
    /// Bytes of all names, keys and arguments together: 512 MiB. What takes more memory than its bytes counts for it: a word
    /// that one key of a topic exchange has for itself as 256 bytes more, a field of a binding's arguments as 64.
    pub bytes_max: usize,
    /// Routing keys of one message: its own, and those of CC and BCC: 1,024.
    pub routing_keys_max: usize,
    /// Acts that are claimed and not settled: 4,096. A further one waits.
    pub acts_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            queues_max: 65_536,
            exchanges_max: 16_384,
            bindings_max: 1 << 20,
            argument_bytes_max: 16 << 10,
            bytes_max: 512 << 20,
            routing_keys_max: 1024,
            acts_max: 4096,
        }
    }
}
