// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"strconv"

	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// Formats of numbers in tables. A missing number is formatted as the empty string,
// which a table shows as absent. JSON contains the plain numbers.

// Number formats a count.
func Number(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return strconv.FormatUint(v.N, 10)
}

// Bytes formats a number of bytes with three digits and a decimal unit.
func Bytes(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return text.Scaled(float64(v.N), "B")
}

// Rate formats bytes per second as bits per second, like ss(8) and iperf3.
func Rate(v sockdiag.Value) string {
	if !v.Known || v.N == 0 {
		return ""
	}
	return text.Scaled(8*float64(v.N), "bit/s")
}

// Micros formats microseconds as milliseconds.
func Micros(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return text.Millis(v.N)
}

// Token formats an MPTCP token.
func Token(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return fmt.Sprintf("%08x", v.N)
}
