//! The types of columns: conversions between them, and the layouts of flat types.

use std::sync::Arc;

use arrow_array::new_empty_array;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};

use super::column_layout::{OffsetWidth, ValueLayout};

/// Returns true if values of type `got` can be written as `expected`, both of them
/// [plain](plain_type): the same type, or one of its family.
pub(super) fn accepts(expected: &DataType, got: &DataType) -> bool {
    use DataType::{
        Binary, FixedSizeList, LargeBinary, LargeList, LargeUtf8, List, Map, Struct, Timestamp,
        Utf8,
    };
    let inside = |expected: &Field, got: &Field| accepts(expected.data_type(), got.data_type());
    match (expected, got) {
        (Utf8 | LargeUtf8, Utf8 | LargeUtf8) => true,
        (Binary | LargeBinary, Binary | LargeBinary) => true,
        (Timestamp(expected, Some(_)), Timestamp(got, Some(_))) => expected == got,
        (List(expected) | LargeList(expected), List(got) | LargeList(got)) => inside(expected, got),
        (Map(expected, _), Map(got, _)) => match (expected.data_type(), got.data_type()) {
            // The names of keys and values differ between libraries.
            (Struct(expected), Struct(got)) => {
                let mut pairs = expected.iter().zip(got);
                expected.len() == got.len() && pairs.all(|(expected, got)| inside(expected, got))
            }
            _ => false,
        },
        (FixedSizeList(expected, n), FixedSizeList(got, m)) => n == m && inside(expected, got),
        (Struct(expected), Struct(got)) => {
            let mut pairs = expected.iter().zip(got);
            expected.len() == got.len()
                && pairs.all(|(e, got)| e.name() == got.name() && inside(e, got))
        }
        (expected, got) => expected == got,
    }
}

/// Returns the type without encodings that save memory: dictionaries, run-end encoding, and views.
pub(crate) fn plain_type(data_type: &DataType) -> DataType {
    use DataType as D;
    let inside = |field: &FieldRef| {
        let plain = plain_type(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(plain))
    };
    match data_type {
        D::Utf8View => D::Utf8,
        D::BinaryView => D::Binary,
        D::Dictionary(_, values) => plain_type(values),
        D::RunEndEncoded(_, values) => plain_type(values.data_type()),
        D::List(field) | D::ListView(field) => D::List(inside(field)),
        D::LargeList(field) | D::LargeListView(field) => D::LargeList(inside(field)),
        D::FixedSizeList(field, n) => D::FixedSizeList(inside(field), *n),
        D::Map(field, sorted) => D::Map(inside(field), *sorted),
        D::Struct(fields) => D::Struct(fields.iter().map(inside).collect()),
        other => other.clone(),
    }
}

/// Returns true if any rows of a plain type can be encoded as `data_type`.
///
/// Excludes keys and run ends of fewer than 32 bits, which cannot number the rows of a page with
/// rows of many batches. Also excludes rows that take no bytes, since encoding allocates memory per
/// row.
pub(super) fn can_pack(data_type: &DataType) -> bool {
    use DataType as D;
    let fits = match data_type {
        D::Dictionary(keys, _) => keys.primitive_width().is_some_and(|width| width >= 4),
        D::RunEndEncoded(ends, _) => ends.data_type().primitive_width() != Some(2),
        D::List(field)
        | D::ListView(field)
        | D::LargeList(field)
        | D::LargeListView(field)
        | D::FixedSizeList(field, _)
        | D::Map(field, _) => return can_pack(field.data_type()),
        D::Struct(fields) => return fields.iter().all(|field| can_pack(field.data_type())),
        _ => return true,
    };
    let plain = plain_type(data_type);
    let packed = cast(&new_empty_array(&plain), data_type);
    let is_flat = !plain.is_nested() && !plain.is_null();
    fits && is_flat && packed.is_ok_and(|packed| packed.data_type() == data_type)
}

/// Returns true if each row of a plain type takes bytes in a page.
pub(super) fn takes_bytes(plain: &DataType) -> bool {
    match plain {
        DataType::Null => false,
        DataType::Struct(fields) => fields.iter().any(|field| takes_bytes(field.data_type())),
        DataType::FixedSizeList(item, _) => takes_bytes(item.data_type()),
        _ => true,
    }
}

/// Returns the layout of a flat type and its name in the hash; `None` if pages do not support it.
pub(super) fn flat_layout(data_type: &DataType) -> Option<(ValueLayout, String)> {
    use DataType as D;
    use ValueLayout::{Bits, Fixed, Null, Var};
    let (layout, name) = match data_type {
        D::Null => (Null, "null"),
        D::Boolean => (Bits, "bool"),
        D::Int8 => (Fixed(1), "int8"),
        D::Int16 => (Fixed(2), "int16"),
        D::Int32 => (Fixed(4), "int32"),
        D::Int64 => (Fixed(8), "int64"),
        D::UInt8 => (Fixed(1), "uint8"),
        D::UInt16 => (Fixed(2), "uint16"),
        D::UInt32 => (Fixed(4), "uint32"),
        D::UInt64 => (Fixed(8), "uint64"),
        D::Float16 => (Fixed(2), "float16"),
        D::Float32 => (Fixed(4), "float32"),
        D::Float64 => (Fixed(8), "float64"),
        D::Date32 => (Fixed(4), "date32"),
        D::Date64 => (Fixed(8), "date64"),
        D::Interval(IntervalUnit::YearMonth) => (Fixed(4), "interval(month)"),
        D::Interval(IntervalUnit::DayTime) => (Fixed(8), "interval(day,ms)"),
        D::Interval(IntervalUnit::MonthDayNano) => (Fixed(16), "interval(month,day,ns)"),
        D::Utf8 => (Var(OffsetWidth::Four), "utf8"),
        D::LargeUtf8 => (Var(OffsetWidth::Eight), "large_utf8"),
        D::Binary => (Var(OffsetWidth::Four), "binary"),
        D::LargeBinary => (Var(OffsetWidth::Eight), "large_binary"),
        parametric => return parametric_layout(parametric),
    };
    Some((layout, name.to_owned()))
}

fn parametric_layout(data_type: &DataType) -> Option<(ValueLayout, String)> {
    use DataType as D;
    use ValueLayout::Fixed;
    Some(match data_type {
        D::Time32(unit) => (Fixed(4), format!("time32({})", unit_name(*unit))),
        D::Time64(unit) => (Fixed(8), format!("time64({})", unit_name(*unit))),
        D::Duration(unit) => (Fixed(8), format!("duration({})", unit_name(*unit))),
        D::Timestamp(unit, None) => (Fixed(8), format!("timestamp({})", unit_name(*unit))),
        D::Timestamp(unit, Some(_)) => (Fixed(8), format!("timestamp({},tz)", unit_name(*unit))),
        D::Decimal32(p, s) => (Fixed(4), format!("decimal32({p},{s})")),
        D::Decimal64(p, s) => (Fixed(8), format!("decimal64({p},{s})")),
        D::Decimal128(p, s) => (Fixed(16), format!("decimal128({p},{s})")),
        D::Decimal256(p, s) => (Fixed(32), format!("decimal256({p},{s})")),
        D::FixedSizeBinary(width) if *width > 0 => {
            (Fixed(usize::try_from(*width).ok()?), format!("fixed_size_binary({width})"))
        }
        _ => return None,
    })
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
