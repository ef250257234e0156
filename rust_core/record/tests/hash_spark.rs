//! Hashes and partition ids, compared with recorded results of Spark 4.3.0: `select hash(...)` and
//! `repartition`.

#![allow(clippy::unwrap_used, reason = "a panic in a test reports the failure")]

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int32Builder, ListBuilder};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, LargeBinaryArray, LargeStringArray, NullArray, RecordBatch,
    StringArray, StringViewArray, StructArray, TimestampMicrosecondArray,
    TimestampMillisecondArray, TimestampNanosecondArray, TimestampSecondArray, UInt32Array,
};
use arrow_buffer::NullBuffer;
use arrow_cast::cast;
use arrow_schema::{DataType, Field, Fields, Schema};
use headgate_record::hash::{HashError, KeyColumn, partition_ids, resolve_columns, row_hashes};

/// The hashes of one-column rows.
fn hashes(array: impl Array + 'static) -> Vec<i32> {
    hashes_of(vec![Arc::new(array)])
}

/// The hashes of rows whose columns are all keys.
fn hashes_of(columns: Vec<ArrayRef>) -> Vec<i32> {
    let batch = batch(columns);
    let columns: Vec<KeyColumn> = (0..batch.num_columns()).map(KeyColumn::from).collect();
    let mut out = vec![1, 2, 3];
    row_hashes(&batch, &columns, &mut out).unwrap();
    out.into_iter().map(u32::cast_signed).collect()
}

fn batch(columns: Vec<ArrayRef>) -> RecordBatch {
    let named = columns.into_iter().enumerate().map(|(i, column)| (format!("c{i}"), column, true));
    RecordBatch::try_from_iter_with_nullable(named).unwrap()
}

#[test]
fn booleans() {
    let array = BooleanArray::from(vec![Some(true), Some(false), None]);
    assert_eq!(hashes(array), [-559_580_957, 933_211_791, 42]);
}

#[test]
fn integers() {
    assert_eq!(
        hashes(Int8Array::from(vec![0, 1, -1, 127, -128])),
        [933_211_791, -559_580_957, -1_604_776_387, 1_135_925_485, 1_110_053_733]
    );
    assert_eq!(
        hashes(Int16Array::from(vec![0, 1, -1, 32767, -32768])),
        [933_211_791, -559_580_957, -1_604_776_387, 1_249_274_084, -1_871_935_946]
    );
    assert_eq!(
        hashes(Int32Array::from(vec![0, 1, -1, 42, i32::MAX, i32::MIN])),
        [933_211_791, -559_580_957, -1_604_776_387, 29_417_773, 133_916_647, 723_455_942]
    );
    assert_eq!(
        hashes(Int64Array::from(vec![0, 1, -1, 42, i64::MAX, i64::MIN])),
        [-1_670_924_195, -1_712_319_331, -939_490_007, 1_316_951_768, -1_604_625_029, -853_646_085]
    );
}

#[test]
fn floats() {
    let nans = [f32::NAN, -f32::NAN, f32::from_bits(0x7fc0_0001)];
    assert_eq!(hashes(Float32Array::from(nans.to_vec())), [-349_261_430; 3]);
    let values = [0.0, -0.0, 1.0, -1.5, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, 1.4e-45];
    assert_eq!(
        hashes(Float32Array::from(values.to_vec())),
        [
            933_211_791,
            933_211_791,
            -466_301_895,
            1_765_572_753,
            2_026_854_605,
            427_440_766,
            -338_752_985,
            -559_580_957
        ]
    );
    let nans = [f64::NAN, -f64::NAN, f64::from_bits(0xfff8_0000_0000_0001)];
    assert_eq!(hashes(Float64Array::from(nans.to_vec())), [-1_281_358_385; 3]);
    let values = [0.0, -0.0, 1.0, -1.5, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, 4.9e-324];
    assert_eq!(
        hashes(Float64Array::from(values.to_vec())),
        [
            -1_670_924_195,
            -1_670_924_195,
            -460_888_942,
            2_099_784_398,
            833_680_482,
            461_104_036,
            -508_695_674,
            -1_712_319_331
        ]
    );
}

const STRINGS: [(&str, i32); 12] = [
    ("", 142_593_372),
    ("a", 1_485_273_170),
    ("ab", -97_053_317),
    ("abc", 1_322_437_556),
    ("abcd", -396_302_900),
    ("abcde", 814_637_928),
    ("Spark", 228_093_765),
    ("hello, world", 2_127_021_762),
    ("héllo", 1_212_979_866),
    ("日本語", -1_143_049_834),
    ("😀😀", -1_970_809_357),
    ("ÿ", 1_533_202_516),
];

const BINARIES: [(&[u8], i32); 6] = [
    (b"", 142_593_372),
    (b"\xff", 1_398_487_324),
    (b"\x80\xff", 1_952_144_757),
    (b"\0\0\0\0", 933_211_791),
    (b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a", -499_588_500),
    (b"\xff\xfe\xfd\xfc\xfb\xfa\xf9", -187_986_939),
];

#[test]
fn strings_of_every_layout() {
    let (values, expected): (Vec<_>, Vec<_>) = STRINGS.into_iter().unzip();
    assert_eq!(hashes(StringArray::from(values.clone())), expected);
    assert_eq!(hashes(LargeStringArray::from(values.clone())), expected);
    assert_eq!(hashes(StringViewArray::from(values)), expected);
}

#[test]
fn binaries_of_every_layout() {
    let (values, expected): (Vec<_>, Vec<_>) = BINARIES.into_iter().unzip();
    assert_eq!(hashes(BinaryArray::from(values.clone())), expected);
    assert_eq!(hashes(LargeBinaryArray::from(values.clone())), expected);
    assert_eq!(hashes(BinaryViewArray::from(values)), expected);
    for (value, expected) in BINARIES {
        let array = FixedSizeBinaryArray::try_from_iter([value].into_iter()).unwrap();
        assert_eq!(hashes(array), [expected]);
    }
}

#[test]
fn dates_and_timestamps() {
    assert_eq!(
        hashes(Date32Array::from(vec![0, -1, 19782, -719_162, 2_932_896])),
        [933_211_791, -1_604_776_387, 653_915_859, -1_147_107_224, 1_135_886_659]
    );
    let expected = [-1_670_924_195, -939_490_007, -1_367_554_535];
    let micros = vec![0, -1, 1_709_210_096_789_012];
    assert_eq!(hashes(TimestampMicrosecondArray::from(micros.clone())), expected);
    let zoned = TimestampMicrosecondArray::from(micros).with_timezone("Europe/Berlin");
    assert_eq!(hashes(zoned), expected);
    let nanos = TimestampNanosecondArray::from(vec![0, -1, 1_709_210_096_789_012_999]);
    assert_eq!(hashes(nanos), expected);
    let long = |micros| hashes(Int64Array::from(vec![micros]));
    assert_eq!(hashes(TimestampMillisecondArray::from(vec![-7])), long(-7_000));
    assert_eq!(hashes(TimestampSecondArray::from(vec![-7])), long(-7_000_000));
}

#[test]
fn decimals() {
    let decimals = |precision, scale, values: &[i128]| {
        let array = Decimal128Array::from(values.to_vec());
        hashes(array.with_precision_and_scale(precision, scale).unwrap())
    };
    assert_eq!(
        decimals(9, 2, &[0, 125, -125, 999_999_999]),
        [-1_670_924_195, 1_910_520_950, -550_551_638, -193_774_131]
    );
    assert_eq!(
        decimals(18, 4, &[0, 12_500, -12_500, 999_999_999_999_999_999]),
        [-1_670_924_195, 1_378_696_288, -851_344_254, -1_795_328_666]
    );
    let wide = [
        (0, -783_713_497),
        (1, -386_724_586),
        (-1, 1_398_487_324),
        (127, 1_185_089_389),
        (128, -544_401_882),
        (-128, 775_851_899),
        (-129, -771_458_971),
        (255, 1_246_198_977),
        (256, 188_218_374),
        (32_767, -1_459_034_263),
        (32_768, -99_371_362),
        (9_999_999_999_999_999_999, 584_036_537),
    ];
    let (values, expected): (Vec<i128>, Vec<i32>) = wide.into_iter().unzip();
    assert_eq!(decimals(19, 0, &values), expected);
    let nines = 10_i128.pow(38) - 1;
    assert_eq!(
        decimals(38, 10, &[0, 12_500_000_000, -12_500_000_000, nines, -nines]),
        [-783_713_497, -1_066_944_564, 520_707_663, -817_514_053, 1_400_911_110]
    );
}

#[test]
fn nulls_do_not_change_the_hash() {
    assert_eq!(hashes(NullArray::new(2)), [42, 42]);
    let ints = Int32Array::from(vec![Some(7), None, Some(7), None]);
    let strings = StringArray::from(vec![Some("x"), Some("x"), None, None]);
    assert_eq!(
        hashes_of(vec![Arc::new(ints), Arc::new(strings)]),
        [-1_387_796_086, -80_340_190, 1_079_293_707, 42]
    );
    assert_eq!(
        hashes_of(vec![Arc::new(NullArray::new(1)), Arc::new(Int32Array::from(vec![1]))]),
        [-559_580_957]
    );
}

#[test]
fn many_columns_hash_in_order() {
    let decimal = Decimal128Array::from(vec![150]).with_precision_and_scale(20, 2).unwrap();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(vec![true])),
        Arc::new(Int64Array::from(vec![3])),
        Arc::new(Float64Array::from(vec![2.5])),
        Arc::new(StringArray::from(vec!["key"])),
        Arc::new(BinaryArray::from(vec![&b"\x0a"[..]])),
        Arc::new(Date32Array::from(vec![19723])),
        Arc::new(decimal),
    ];
    assert_eq!(hashes_of(columns), [-1_618_502_701]);
}

#[test]
fn sliced_columns_hash_their_own_rows() {
    let mut keys = BooleanBuilder::new();
    keys.append_n(11, false);
    keys.append_null();
    keys.append_value(true);
    keys.append_value(false);
    assert_eq!(hashes(keys.finish().slice(11, 3)), [42, -559_580_957, 933_211_791]);
    let strings = StringViewArray::from(vec!["zz", "a", "hello, world, and more"]);
    assert_eq!(hashes(strings.slice(1, 1)), [1_485_273_170]);
}

#[test]
fn lists_and_structs() {
    let mut lists = ListBuilder::new(Int32Builder::new());
    lists.append_value([Some(7)]);
    lists.append_value([Some(1), None, Some(2)]);
    lists.append_value([]);
    lists.append_null();
    let lists: ArrayRef = Arc::new(lists.finish());
    let expected = hashes_of(vec![
        Arc::new(Int32Array::from(vec![7, 1])),
        Arc::new(Int32Array::from(vec![None, Some(2)])),
    ]);
    let expected = [expected[0], expected[1], 42, 42];
    assert_eq!(hashes_of(vec![Arc::clone(&lists)]), expected);
    assert_eq!(hashes_of(vec![lists.slice(1, 2)]), expected[1..3]);
    for other in [
        DataType::LargeList(Arc::new(Field::new("item", DataType::Int32, true))),
        DataType::ListView(Arc::new(Field::new("item", DataType::Int32, true))),
    ] {
        assert_eq!(hashes_of(vec![cast(&lists, &other).unwrap()]), expected);
    }

    let (numbers, texts) = (Int32Array::from(vec![1, 5, 6]), StringArray::from(vec!["a", "b", ""]));
    let columns: Vec<ArrayRef> = vec![Arc::new(numbers.clone()), Arc::new(texts.clone())];
    let fields = Fields::from(vec![
        Field::new("n", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
    ]);
    let nulls = Some(NullBuffer::from(vec![true, false, true]));
    let structs = StructArray::new(fields, columns.clone(), nulls);
    let flat = hashes_of(columns);
    assert_eq!(hashes(structs.clone()), [flat[0], 42, flat[2]]);
    assert_eq!(hashes(structs.slice(2, 1)), flat[2..]);
    let pairs: ArrayRef = Arc::new(Int32Array::from(vec![1, 5, 6, 1]));
    let item = Arc::new(Field::new("item", DataType::Int32, true));
    let pairs = FixedSizeListArray::new(item, 2, pairs, Some(NullBuffer::from(vec![false, true])));
    let last =
        hashes_of(vec![Arc::new(Int32Array::from(vec![6])), Arc::new(Int32Array::from(vec![1]))]);
    assert_eq!(hashes(pairs), [42, last[0]]);
}

#[test]
fn encoded_columns_hash_like_their_values() {
    let plain: ArrayRef = Arc::new(StringArray::from(vec![Some("a"), None, Some("a"), Some("é")]));
    let expected = hashes_of(vec![Arc::clone(&plain)]);
    let runs = Arc::new(Field::new("run_ends", DataType::Int32, false));
    let values = Arc::new(Field::new("values", DataType::Utf8, true));
    for packed in [
        DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)),
        DataType::RunEndEncoded(runs, values),
    ] {
        assert_eq!(hashes_of(vec![cast(&plain, &packed).unwrap()]), expected);
    }
}

#[test]
fn partition_ids_equal_those_of_repartition() {
    let mut ids = Vec::new();
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(-5..15));
    partition_ids(&batch(vec![keys]), &[0.into()], 7, &mut ids).unwrap();
    assert_eq!(ids, [2, 3, 4, 1, 6, 4, 5, 5, 5, 4, 4, 6, 0, 5, 1, 4, 4, 2, 0, 1]);

    let strings = StringArray::from_iter_values((0..12).map(|i| format!("k{i}")));
    let doubles: Float64Array = (0..12).map(|i| (i % 3 != 0).then(|| f64::from(i) * 1.5)).collect();
    let two_keys = batch(vec![Arc::new(strings), Arc::new(doubles)]);
    partition_ids(&two_keys, &[0.into(), 1.into()], 16, &mut ids).unwrap();
    assert_eq!(ids, [6, 3, 9, 10, 14, 13, 5, 15, 0, 3, 9, 7]);
}

#[test]
fn keys_that_cannot_be_hashed_are_named() {
    let numbers: ArrayRef = Arc::new(UInt32Array::from(vec![1]));
    let unsigned = batch(vec![numbers]);
    let mut out = Vec::new();
    let unsupported =
        HashError::UnsupportedKeyType { column: "c0".to_owned(), data_type: DataType::UInt32 };
    assert_eq!(partition_ids(&unsigned, &[0.into()], 2, &mut out), Err(unsupported.clone()));
    assert_eq!(
        partition_ids(&unsigned, &[3.into()], 2, &mut out),
        Err(HashError::NoSuchColumn { index: 3, columns: 1 })
    );
    assert_eq!(resolve_columns(&unsigned.schema(), &[["c0"]]), Err(unsupported));

    let field = |name| Field::new(name, DataType::Int32, true);
    let schema = Schema::new(vec![field("a"), field("b"), field("a")]);
    assert_eq!(resolve_columns(&schema, &[["b"]]), Ok(vec![1.into()]));
    assert_eq!(
        resolve_columns(&schema, &[["b"], ["a"]]),
        Err(HashError::AmbiguousColumn { name: "a".to_owned() })
    );
    let have = ["a", "b", "a"].map(str::to_owned).to_vec();
    assert_eq!(
        resolve_columns(&schema, &[["x"]]),
        Err(HashError::UnknownColumn { name: "x".to_owned(), have })
    );
}

#[test]
fn a_field_of_a_struct_is_hashed_like_a_column_of_its_values() {
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, Some(3), Some(4)]));
    let field = |name: &str, array: &ArrayRef, nulls| {
        let fields = Fields::from(vec![Field::new(name, array.data_type().clone(), true)]);
        Arc::new(StructArray::new(fields, vec![Arc::clone(array)], nulls)) as ArrayRef
    };
    // The third inner struct and the fourth outer one are null, though their numbers are not.
    let inner = field("n", &numbers, Some(NullBuffer::from(vec![true, true, false, true])));
    let outer = field("inner", &inner, Some(NullBuffer::from(vec![true, true, true, false])));
    let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(1), None, None, None]));
    for (start, rows) in [(0, 4), (1, 3)] {
        let batch = batch(vec![outer.slice(start, rows)]);
        let columns = resolve_columns(&batch.schema(), &[["c0", "inner", "n"]]).unwrap();
        let mut out = Vec::new();
        row_hashes(&batch, &columns, &mut out).unwrap();
        let out: Vec<i32> = out.into_iter().map(u32::cast_signed).collect();
        assert_eq!(out, hashes_of(vec![values.slice(start, rows)]));
    }
    let schema = batch(vec![outer]).schema();
    let unknown = |name: &str, have: &[&str]| HashError::UnknownColumn {
        name: name.to_owned(),
        have: have.iter().map(|&name| name.to_owned()).collect(),
    };
    assert_eq!(resolve_columns(&schema, &[["c0", "x"]]), Err(unknown("x", &["inner"])));
    assert_eq!(resolve_columns(&schema, &[["c0", "inner", "n", "x"]]), Err(unknown("x", &[])));
}
