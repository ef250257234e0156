//! Random batches of all types that pages support, determined by a seed.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, LargeBinaryArray, LargeStringArray, NullArray,
    RecordBatch, RecordBatchOptions, StringArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit};

/// A generator of pseudo-random numbers (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}

/// Every flat type with a layout of its own.
pub(crate) fn types() -> Vec<DataType> {
    use DataType::*;
    vec![
        Null,
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float16,
        Float32,
        Float64,
        Date32,
        Date64,
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
        Timestamp(TimeUnit::Second, None),
        Timestamp(TimeUnit::Millisecond, Some("+02:00".into())),
        Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        Timestamp(TimeUnit::Nanosecond, None),
        Duration(TimeUnit::Second),
        Duration(TimeUnit::Microsecond),
        Interval(IntervalUnit::YearMonth),
        Interval(IntervalUnit::DayTime),
        Interval(IntervalUnit::MonthDayNano),
        Decimal32(9, 2),
        Decimal64(18, 4),
        Decimal128(38, 10),
        Decimal256(76, 38),
        FixedSizeBinary(3),
        FixedSizeBinary(20),
        Utf8,
        LargeUtf8,
        Binary,
        LargeBinary,
    ]
}

fn field(name: &str, data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, nullable))
}

/// Nested types.
pub(crate) fn nested_types() -> Vec<DataType> {
    use DataType::*;
    let map = |key, value| {
        let entries = Struct(vec![field("keys", key, false), field("values", value, true)].into());
        Map(field("entries", entries, false), false)
    };
    let point = vec![field("x", Float64, false), field("name", Utf8, true), field("n", Null, true)];
    let point = Struct(point.into());
    vec![
        List(field("item", Int32, true)),
        List(field("item", Utf8, false)),
        LargeList(field("item", Boolean, true)),
        List(field("item", List(field("item", LargeUtf8, true)), true)),
        List(field("item", Null, true)),
        FixedSizeList(field("item", Int16, true), 3),
        FixedSizeList(field("item", Boolean, false), 2),
        FixedSizeList(field("item", List(field("item", Int8, true)), true), 2),
        Struct(Fields::empty()),
        point.clone(),
        List(field("item", point.clone(), true)),
        Struct(vec![field("at", point, true), field("on", Boolean, false)].into()),
        map(Utf8, Int64),
        map(Int32, List(field("item", Binary, true))),
    ]
}

/// Types that are sent in another type.
pub(crate) fn packed_types() -> Vec<DataType> {
    use DataType::*;
    let dictionary = Dictionary(Box::new(Int32), Box::new(Utf8));
    vec![
        Utf8View,
        BinaryView,
        dictionary.clone(),
        Dictionary(Box::new(UInt64), Box::new(Int64)),
        RunEndEncoded(field("run_ends", Int32, false), field("values", Utf8, true)),
        ListView(field("item", Int32, true)),
        LargeListView(field("item", Utf8View, true)),
        List(field("item", dictionary.clone(), true)),
        Struct(vec![field("tag", dictionary, true), field("text", Utf8View, false)].into()),
    ]
}

/// The type in which an encoded type is sent.
pub(crate) fn plain(data_type: &DataType) -> DataType {
    use DataType::*;
    let inside =
        |inner: &Arc<Field>| field(inner.name(), plain(inner.data_type()), inner.is_nullable());
    match data_type {
        Utf8View => Utf8,
        BinaryView => Binary,
        Dictionary(_, values) => values.as_ref().clone(),
        RunEndEncoded(_, values) => values.data_type().clone(),
        List(item) | ListView(item) => List(inside(item)),
        LargeList(item) | LargeListView(item) => LargeList(inside(item)),
        Struct(fields) => Struct(fields.iter().map(inside).collect()),
        other => other.clone(),
    }
}

/// The types that can be written as `expected`.
pub(crate) fn family(expected: &DataType) -> Vec<DataType> {
    use DataType::*;
    match expected {
        Utf8 | LargeUtf8 => vec![Utf8, LargeUtf8, Utf8View],
        Binary | LargeBinary => vec![Binary, LargeBinary, BinaryView],
        Timestamp(unit, Some(_)) => {
            vec![expected.clone(), Timestamp(*unit, Some("Asia/Tokyo".into()))]
        }
        List(item) => vec![expected.clone(), LargeList(item.clone())],
        other if packed_types().contains(other) => vec![expected.clone(), plain(expected)],
        other => vec![other.clone()],
    }
}

pub(crate) fn schema(types: &[(DataType, bool)]) -> SchemaRef {
    let fields = types.iter().enumerate().map(|(i, (data_type, nullable))| {
        Field::new(format!("c{i}"), data_type.clone(), *nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// A batch of a schema, and an equal one whose columns may be of other types of their families.
pub(crate) fn batches(
    schema: &SchemaRef,
    rows: usize,
    max_bytes: usize,
    random: &mut Random,
) -> (RecordBatch, RecordBatch) {
    let mut fields = Vec::new();
    let (mut columns, mut other_columns) = (Vec::new(), Vec::new());
    for field in schema.fields() {
        let others = family(field.data_type());
        let other = &others[random.below(others.len())];
        let seed = random.next();
        let column = |data_type: &DataType| {
            array(data_type, field.is_nullable(), rows, max_bytes, &mut Random(seed))
        };
        columns.push(column(field.data_type()));
        other_columns.push(column(other));
        fields.push(Field::new(field.name(), other.clone(), true));
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch =
        |schema, columns| RecordBatch::try_new_with_options(schema, columns, &options).unwrap();
    (batch(schema.clone(), columns), batch(Arc::new(Schema::new(fields)), other_columns))
}

fn array(
    data_type: &DataType,
    nullable: bool,
    rows: usize,
    max_bytes: usize,
    random: &mut Random,
) -> ArrayRef {
    if plain(data_type) != *data_type {
        let array = array(&plain(data_type), nullable, rows, max_bytes, random);
        return cast(&array, data_type).unwrap();
    }
    // Some nullable columns have no nulls, and some have few.
    let nulls_in = if nullable { [0, 2, 1000][random.below(3)] } else { 0 };
    let valid: Vec<bool> = (0..rows).map(|_| nulls_in == 0 || random.below(nulls_in) > 0).collect();
    let strings = |random: &mut Random| -> Vec<Option<String>> {
        let alphabet = ["a", "b", "é", "日", "😀"];
        valid
            .iter()
            .map(|&valid| {
                let letters = random.below(max_bytes / 4 + 1);
                let text: String = (0..letters).map(|_| alphabet[random.below(5)]).collect();
                valid.then_some(text)
            })
            .collect()
    };
    let binaries = |random: &mut Random| -> Vec<Option<Vec<u8>>> {
        valid
            .iter()
            .map(|&valid| {
                let bytes = random.below(max_bytes + 1);
                let bytes = (0..bytes).map(|_| random.next().to_le_bytes()[0]).collect();
                valid.then_some(bytes)
            })
            .collect()
    };
    let nulls = || (nulls_in > 0).then(|| NullBuffer::from(valid.clone()));
    if data_type.is_nested() {
        return nested_array(data_type, nulls(), rows, max_bytes, random);
    }
    match data_type {
        DataType::Null => Arc::new(NullArray::new(rows)),
        DataType::Boolean => {
            let bits = valid.iter().map(|&valid| valid.then(|| random.below(2) == 0));
            Arc::new(bits.collect::<BooleanArray>())
        }
        DataType::Utf8 => Arc::new(StringArray::from_iter(strings(random))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from_iter(strings(random))),
        DataType::Binary => Arc::new(BinaryArray::from_iter(binaries(random))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(binaries(random))),
        fixed => {
            let width = match fixed {
                DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap(),
                primitive => primitive.primitive_width().unwrap(),
            };
            // The slots of nulls get random bytes, which must not be sent.
            let bytes: Vec<u8> =
                (0..rows * width).map(|_| random.next().to_le_bytes()[0]).collect();
            let data = ArrayData::builder(fixed.clone())
                .len(rows)
                .nulls(nulls())
                .add_buffer(Buffer::from_slice_ref(&bytes))
                .build()
                .unwrap();
            make_array(data)
        }
    }
}

/// The slots of nulls have children too, which must not be sent.
fn nested_array(
    data_type: &DataType,
    nulls: Option<NullBuffer>,
    rows: usize,
    max_bytes: usize,
    random: &mut Random,
) -> ArrayRef {
    let max_bytes = max_bytes / 4;
    let inside = |field: &Field, rows: usize, random: &mut Random| {
        array(field.data_type(), field.is_nullable(), rows, max_bytes, random).to_data()
    };
    let builder = ArrayData::builder(data_type.clone()).len(rows).nulls(nulls);
    let builder = match data_type {
        DataType::Struct(fields) => fields
            .iter()
            .fold(builder, |builder, field| builder.add_child_data(inside(field, rows, random))),
        DataType::FixedSizeList(item, n) => {
            let times = usize::try_from(*n).unwrap();
            builder.add_child_data(inside(item, rows * times, random))
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            let lens: Vec<_> = (0..rows).map(|_| random.below(4)).collect();
            let offsets = if let DataType::LargeList(_) = data_type {
                OffsetBuffer::<i64>::from_lengths(lens.iter().copied()).into_inner().into_inner()
            } else {
                OffsetBuffer::<i32>::from_lengths(lens.iter().copied()).into_inner().into_inner()
            };
            let elements = lens.iter().sum();
            builder.add_buffer(offsets).add_child_data(inside(item, elements, random))
        }
        other => unreachable!("{other} has nothing inside"),
    };
    make_array(builder.build().unwrap())
}
