// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strconv"

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
	return scaled(float64(v.N), "B")
}

// rate writes bytes a second as bits a second, as ss(8) and iperf3 do.
func rate(v sockdiag.Value) string {
	if !v.Known || v.N == 0 {
		return ""
	}
	return scaled(8*float64(v.N), "bit/s")
}

func scaled(f float64, unit string) string {
	prefixes := []string{"", "k", "M", "G", "T", "P", "E"}
	i := 0
	for f >= 999.5 && i < len(prefixes)-1 {
		f /= 1000
		i++
	}
	digits := 0
	if i > 0 && f < 9.995 {
		digits = 2
	} else if i > 0 && f < 99.95 {
		digits = 1
	}
	return strconv.FormatFloat(f, 'f', digits, 64) + prefixes[i] + unit
}

// micros writes microseconds as milliseconds.
func micros(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	ms := float64(v.N) / 1000
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}

// millis writes milliseconds as seconds.
func millis(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return strconv.FormatFloat(float64(v.N)/1000, 'f', 1, 64) + "s"
}

func token(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return fmt.Sprintf("%08x", v.N)
}
