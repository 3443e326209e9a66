// SPDX-License-Identifier: Apache-2.0

package text

import (
	"fmt"
	"strconv"
	"time"
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

// Plural formats a count with its noun: 1 socket, 2 sockets.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ShortDuration formats a duration in its two largest units: 4s, 3m12s, 2h5m, 9d4h.
func ShortDuration(d time.Duration) string {
	d = max(d, 0)
	day := 24 * time.Hour
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
}
