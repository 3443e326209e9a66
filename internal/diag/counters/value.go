// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"errors"
	"strconv"
)

// Value is a number as the kernel prints it: from -2^63 (TcpMaxConn is -1) to 2^64-1.
type Value struct {
	n        uint64 // two's complement if negative
	negative bool
}

func integer(n int64) Value   { return Value{uint64(n), n < 0} }
func unsigned(n uint64) Value { return Value{n, false} }
func (v Value) less(w Value) bool {
	if v.negative != w.negative {
		return v.negative
	}
	return v.n < w.n
}

// ParseValue parses a number.
func ParseValue(s string) (Value, error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return integer(n), nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return Value{}, errForm
	}
	return unsigned(n), nil
}

// String formats the value in decimal.
func (v Value) String() string {
	if v.negative {
		return strconv.FormatInt(int64(v.n), 10)
	}
	return strconv.FormatUint(v.n, 10)
}

// Int returns the value as an int64. Values above its range wrap.
func (v Value) Int() int64 { return int64(v.n) }

// Float returns the nearest floating-point number to the value.
func (v Value) Float() float64 {
	if v.negative {
		return float64(int64(v.n))
	}
	return float64(v.n)
}

// IsZero reports whether the value is 0.
func (v Value) IsZero() bool { return v.n == 0 }

// MarshalJSON encodes the value as an exact JSON number.
func (v Value) MarshalJSON() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalJSON parses a JSON number.
func (v *Value) UnmarshalJSON(b []byte) error {
	w, err := ParseValue(string(b))
	if err != nil {
		return errors.New("expected an integer")
	}
	*v = w
	return nil
}
