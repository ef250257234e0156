//! The result of `Environment.stats()`: a snapshot as dicts and lists.

use headgate_exchange::{Metric, Metrics, Stats};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

pub(crate) fn stats_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let pool = &stats.pool;
    let segments = PyDict::new(py);
    segments.set_item("size", pool.segment_size)?;
    segments.set_item("total", pool.total)?;
    segments.set_item("idle", pool.idle)?;
    segments.set_item("held", pool.held)?;
    segments.set_item("reserved", pool.reserved)?;
    segments.set_item("pinned", pool.pinned)?;
    segments.set_item("peak", pool.peak)?;
    segments.set_item("local_pools", pool.local_pools)?;
    segments.set_item("requested_percent", pool.requested_percent)?;
    let copies = PyDict::new(py);
    copies.set_item("scatter", stats.copied_scatter)?;
    copies.set_item("compacted", stats.copied_compacted)?;
    copies.set_item("coalesced", stats.copied_coalesced)?;
    copies.set_item("pool_low", stats.copied_pool_low)?;
    copies.set_item("joined", stats.copied_joined)?;
    copies.set_item("spanning", stats.copied_spanning)?;
    copies.set_item("spilled", stats.copied_spilled)?;
    copies.set_item("unmapped", stats.copied_unmapped)?;
    let partitions = PyList::empty(py);
    for partition in &stats.partitions {
        let rows = PyList::empty(py);
        for subpartition in &partition.subpartitions {
            let row = PyDict::new(py);
            row.set_item("queued", subpartition.queued)?;
            row.set_item("rows", subpartition.rows)?;
            row.set_item("bytes", subpartition.bytes)?;
            row.set_item("buffers", subpartition.buffers)?;
            rows.append(row)?;
        }
        partitions.append(rows)?;
    }
    let gates = PyList::empty(py);
    for gate in &stats.gates {
        let rows = PyList::empty(py);
        for channel in &gate.channels {
            let row = PyDict::new(py);
            row.set_item("name", &channel.name)?;
            row.set_item("credit", channel.credit)?;
            row.set_item("queued", channel.queue.buffers)?;
            rows.append(row)?;
        }
        gates.append(rows)?;
    }
    let spilled = PyDict::new(py);
    spilled.set_item("bytes_written", stats.spilled.bytes_written)?;
    spilled.set_item("bytes_read", stats.spilled.bytes_read)?;
    spilled.set_item("files", stats.spilled.files)?;
    let compression = PyDict::new(py);
    compression.set_item("bytes_in", stats.compressed_in)?;
    compression.set_item("bytes_out", stats.compressed_out)?;
    let out = PyDict::new(py);
    out.set_item("segments", segments)?;
    out.set_item("peak_bytes", pool.peak * pool.segment_size)?;
    out.set_item("bytes_sent", stats.bytes_sent)?;
    out.set_item("bytes_received", stats.bytes_received)?;
    let connections = PyDict::new(py);
    connections.set_item("tcp", stats.connections.tcp)?;
    connections.set_item("same_host", stats.connections.same_host)?;
    let lent = PyDict::new(py);
    lent.set_item("now", stats.lent.now)?;
    lent.set_item("buffers", stats.lent.buffers)?;
    lent.set_item("bytes", stats.lent.bytes)?;
    out.set_item("connections", connections)?;
    out.set_item("lent", lent)?;
    out.set_item("copies", copies)?;
    out.set_item("compression", compression)?;
    out.set_item("spilled", spilled)?;
    out.set_item("partitions", partitions)?;
    out.set_item("gates", gates)?;
    out.set_item("metrics", metrics(py, stats)?)?;
    Ok(out)
}

/// Returns metrics by Flink's names: a dict each for the environment's memory and its task, and lists of
/// dicts for gates with their channels and for partitions with their subpartitions. See
/// docs/adr/0017-metrics.md.
fn metrics<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let partitions = PyList::empty(py);
    for partition in &stats.partitions {
        let node = dict(py, &partition.metrics())?;
        node.set_item("id", partition.id.to_string())?;
        let subpartitions = PyList::empty(py);
        for subpartition in &partition.subpartitions {
            subpartitions.append(dict(py, &subpartition.metrics())?)?;
        }
        node.set_item("subpartitions", subpartitions)?;
        partitions.append(node)?;
    }
    let gates = PyList::empty(py);
    for gate in &stats.gates {
        let node = dict(py, &gate.metrics())?;
        let channels = PyList::empty(py);
        for channel in &gate.channels {
            let metrics = dict(py, &channel.metrics())?;
            metrics.set_item("name", &channel.name)?;
            channels.append(metrics)?;
        }
        node.set_item("channels", channels)?;
        gates.append(node)?;
    }
    let out = PyDict::new(py);
    out.set_item("shuffle", dict(py, &stats.shuffle_metrics())?)?;
    out.set_item("task", dict(py, &stats.task_metrics())?)?;
    out.set_item("partitions", partitions)?;
    out.set_item("gates", gates)?;
    Ok(out)
}

fn dict<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, metric) in metrics {
        match metric {
            Metric::Count(count) => out.set_item(name, count)?,
            Metric::Share(share) => out.set_item(name, share)?,
        }
    }
    Ok(out)
}
