// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strconv"
)

// Scaled formats a number with three digits and a decimal prefix before its unit.
func Scaled(f float64, unit string) string {
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

// Millis formats microseconds as milliseconds, with three digits.
func Millis(us uint64) string {
	ms := float64(us) / 1000
	switch {
	case ms < 1:
		return fmt.Sprintf("%.2fms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1fms", ms)
	}
	return fmt.Sprintf("%.0fms", ms)
}
