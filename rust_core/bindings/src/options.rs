//! The options of an environment, from Python's mapping to the exchange's `Config`.

use std::time::Duration;

use headgate_exchange::{BufferDebloatOptions, BufferOptions, Config, Tls, TlsFiles};
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::to_py;

/// The resolved options of `headgate._options`: sizes in bytes, durations in seconds.
///
/// Python has checked every value against its limits, so an error here is a bug of the two sides.
pub(crate) struct Options<'a, 'py>(pub(crate) &'a Bound<'py, PyAny>);

impl<'py> Options<'_, 'py> {
    /// Returns the configuration of one process of the exchange.
    pub(crate) fn config(
        &self,
        secret: [u8; 32],
        exchange: [u8; 16],
        run: u32,
        epoch: u32,
        process: Option<[u8; 16]>,
    ) -> PyResult<Config> {
        Ok(Config {
            memory: self.get("memory")?,
            segment_size: self.get("segment_size")?,
            listen: self.get("listen")?,
            secret,
            exchange,
            run,
            epoch,
            process,
            max_record_size: self.get("max_record_size")?,
            buffers: BufferOptions {
                buffers_per_channel: self.get("buffers_per_channel")?,
                floating_buffers_per_gate: self.get("floating_buffers_per_gate")?,
                max_buffers_per_channel: self.get("max_buffers_per_channel")?,
                max_overdraft_buffers: self.get("max_overdraft_buffers")?,
            },
            spill_threshold: self.get("spill_threshold")?,
            temp_directories: self.get("temp_directories")?,
            partition_request_timeout: self.duration("partition_request_timeout")?,
            idle_timeout: self.duration("idle_timeout")?,
            same_host_link: self.get::<String>("same_host_link")? == "auto",
            tls: self.tls()?,
            buffer_debloat: self.buffer_debloat()?,
        })
    }

    fn tls(&self) -> PyResult<Option<Tls>> {
        if self.get::<String>("tls")? != "require" {
            return Ok(None);
        }
        let made = match self.get("tls_ca")? {
            Some(ca) => Tls::from_files(&TlsFiles {
                ca,
                certificate: self.get("tls_certificate")?,
                key: self.get("tls_key")?,
            }),
            None => Tls::ephemeral(),
        };
        made.map(Some).map_err(|error| to_py(self.0.py(), &error.into()))
    }

    fn buffer_debloat(&self) -> PyResult<Option<BufferDebloatOptions>> {
        if !self.get::<bool>("buffer_debloat_enabled")? {
            return Ok(None);
        }
        let starting_segment_size = match self.get("starting_segment_size")? {
            Some(size) => size,
            None => self.get("segment_size")?,
        };
        Ok(Some(BufferDebloatOptions {
            target: self.duration("buffer_debloat_target")?,
            period: self.duration("buffer_debloat_period")?,
            samples: self.get("buffer_debloat_samples")?,
            threshold_percentages: self.get("buffer_debloat_threshold_percentages")?,
            min_segment_size: self.get("min_segment_size")?,
            starting_segment_size,
        }))
    }

    fn get<T: FromPyObjectOwned<'py>>(&self, name: &str) -> PyResult<T> {
        self.0.get_item(name)?.extract().map_err(Into::into)
    }

    fn duration(&self, name: &str) -> PyResult<Duration> {
        Duration::try_from_secs_f64(self.get(name)?)
            .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
    }
}
