// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/sockdiag"
)

// The forms of numbers in tables; what is absent is the empty string, which a
// table shows as absent. JSON has the plain numbers.

func number(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return strconv.FormatUint(v.N, 10)
}

// bytes writes a count of bytes with three digits and a decimal unit.
func bytes(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return cli.Scaled(float64(v.N), "B")
}

// rate writes bytes a second as bits a second, as ss(8) and iperf3 do.
func rate(v sockdiag.Value) string {
	if !v.Known || v.N == 0 {
		return ""
	}
	return cli.Scaled(8*float64(v.N), "bit/s")
}

// micros writes microseconds as milliseconds.
func micros(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return cli.Millis(v.N)
}

func token(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return fmt.Sprintf("%08x", v.N)
}
