"""How values are declared: options, checks, units, tables of numbers.

In: raw values. Out: checked values, or a `ConfigError` that names what is wrong.
Imports only `errors`.
"""

from sipml_core.fields.checks import (
    at_least,
    between,
    bool_vector,
    each,
    float32_vector,
    float64_matrix,
    float64_vector,
    int32_matrix,
    int32_vector,
    int64_matrix,
    int64_vector,
    one_of,
    positive,
)
from sipml_core.fields.csvtable import read_table
from sipml_core.fields.options import option
from sipml_core.fields.paths import FileText, absolute_paths, file_path, names_file, sha256_of
from sipml_core.fields.tomlfile import parse_toml, read_toml
from sipml_core.fields.units import (
    BYTES_PER_US_PER_GBPS,
    format_bytes,
    format_count,
    format_gbps,
    format_number,
    format_us,
    parse_bytes,
    parse_gbps,
    parse_us,
)
from sipml_core.fields.values import frozen

__all__ = [
    "BYTES_PER_US_PER_GBPS",
    "FileText",
    "absolute_paths",
    "at_least",
    "between",
    "bool_vector",
    "each",
    "file_path",
    "float32_vector",
    "float64_matrix",
    "float64_vector",
    "format_bytes",
    "format_count",
    "format_gbps",
    "format_number",
    "format_us",
    "frozen",
    "int32_matrix",
    "int32_vector",
    "int64_matrix",
    "int64_vector",
    "names_file",
    "one_of",
    "option",
    "parse_bytes",
    "parse_gbps",
    "parse_toml",
    "parse_us",
    "positive",
    "read_table",
    "read_toml",
    "sha256_of",
]
