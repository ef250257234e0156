//! A kept partition that this process serves to others.

use std::sync::Arc;

use super::damage::DamageReport;
use super::files::KeptFile;
use super::reading::Reading;
use super::view::KeptView;
use crate::error::{ExchangeError, Result};
use crate::view::{DataListener, ReadablePartition, SubpartitionView};

/// The files of one producer. Nothing of them is in memory before a consumer asks.
pub(crate) struct ServedPartition {
    file: KeptFile,
    report: Arc<DamageReport>,
}

impl ServedPartition {
    pub(crate) fn new(file: KeptFile, report: Arc<DamageReport>) -> Self {
        Self { file, report }
    }

    fn view(&self, index: usize) -> Result<KeptView> {
        let found = u32::try_from(index).map_or(Ok(None), |index| self.file.read(index))?;
        let Some((kept, pages)) = found else {
            let detail = format!("subpartition {index} has no rows in {}", self.file.name());
            return Err(ExchangeError::PartitionNotFound {
                peer: "this process".to_owned(),
                detail,
            });
        };
        let name = format!("subpartition {index} of {}", self.file.name());
        Ok(KeptView::new(Reading::new(&name, &kept, pages)?, Arc::clone(&self.report)))
    }
}

impl ReadablePartition for ServedPartition {
    /// None: the exchange that made the request made the files, too.
    fn schema_hash(&self) -> Option<[u8; 32]> {
        None
    }

    fn create_view(
        &self,
        index: usize,
        _listener: Arc<dyn DataListener>,
    ) -> Result<Arc<dyn SubpartitionView>> {
        let view = self.view(index).inspect_err(|error| self.report.note(error))?;
        Ok(Arc::new(view))
    }
}
