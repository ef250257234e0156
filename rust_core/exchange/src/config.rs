//! What an environment is made with; immutable afterwards.

/// Sizes, names and secrets of one environment.
#[derive(Clone)]
pub struct Config {
    /// Budget of exchange data in bytes.
    pub memory: usize,
    /// Bytes of one segment: a multiple of 64.
    pub segment_size: usize,
    /// `host:port` to listen on, once somebody asks for an address; port 0 is any free one.
    pub listen: String,
    /// Shared by all processes of the exchange.
    pub secret: [u8; 32],
    /// Which exchange.
    pub exchange: [u8; 16],
    /// Which evaluation of it.
    pub run: u32,
    /// Which attempt at that.
    pub epoch: u32,
    /// Largest record in bytes.
    pub max_record_size: usize,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Never the secret.
        f.debug_struct("Config")
            .field("memory", &self.memory)
            .field("segment_size", &self.segment_size)
            .field("listen", &self.listen)
            .field("run", &self.run)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
