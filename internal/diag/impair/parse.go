// SPDX-License-Identifier: Apache-2.0

package impair

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
)

// Keywords are the words that can start a step, for shell completion.
var Keywords = []string{"down", "up", "silent", "delay", "jitter", "loss", "rate", "duplicate", "reorder", "corrupt", "limit", "seed", "clear"}

var both = []stacknet.Way{stacknet.In, stacknet.Out}

// ParseWays parses the name of a direction: in, out or both.
func ParseWays(name string) ([]stacknet.Way, error) {
	switch name {
	case "in":
		return []stacknet.Way{stacknet.In}, nil
	case "out":
		return []stacknet.Way{stacknet.Out}, nil
	case "both":
		return both, nil
	}
	return nil, fmt.Errorf("direction %q; expected in, out or both", name)
}

// ParseStep parses the words of a step for the interface iface.
func ParseStep(iface string, ways []stacknet.Way, words []string) (Step, error) {
	s := Step{Iface: iface, Ways: ways, Words: strings.Join(words, " ")}
	if len(words) == 0 {
		return s, fmt.Errorf("%s: missing step; expected %s", iface, strings.Join(Keywords, ", "))
	}
	given := map[string]bool{}
	for len(words) > 0 {
		word := words[0]
		words = words[1:]
		key := word
		if slices.Contains([]string{"down", "up", "silent"}, word) {
			key = "down, up or silent"
		}
		if given[key] {
			return s, fmt.Errorf("%s: %s: given twice", iface, key)
		}
		given[key] = true
		if s.plain(word) {
			continue
		}
		if !slices.Contains(Keywords, word) {
			if word == "mtu" {
				return s, fmt.Errorf("%s: %q is no impairment; set it at each end: lklctl link set %s mtu N", iface, word, iface)
			}
			return s, fmt.Errorf("%s: step %q; expected %s", iface, word, strings.Join(Keywords, ", "))
		}
		if len(words) == 0 {
			return s, fmt.Errorf("%s: %s: missing value", iface, word)
		}
		if err := s.value(word, words[0]); err != nil {
			return s, fmt.Errorf("%s: %s %w", iface, word, err)
		}
		words = words[1:]
	}
	if len(ways) < 2 && s.carrier != nil && !*s.carrier {
		return s, fmt.Errorf("%s: down applies to both directions; use silent to drop all packets of one direction", iface)
	}
	return s, nil
}

// plain applies a keyword that has no value.
func (s *Step) plain(word string) bool {
	drop := func(yes bool) {
		s.add(func(i *stacknet.Impairment) { i.Drop = yes })
	}
	on, off := true, false
	switch word {
	case "down": // packets in flight are lost, too
		s.carrier = &off
		drop(true)
	case "up":
		if len(s.Ways) == len(both) {
			s.carrier = &on
		}
		drop(false)
	case "silent":
		drop(true)
	case "clear": // clear is applied first, wherever it is written
		if len(s.Ways) == len(both) && s.carrier == nil {
			s.carrier = &on
		}
		s.changes = append([]func(*State, stacknet.Way){func(have *State, w stacknet.Way) { have.Ways[w] = stacknet.Impairment{} }}, s.changes...)
	default:
		return false
	}
	return true
}

func (s *Step) add(change func(*stacknet.Impairment)) {
	s.changes = append(s.changes, func(have *State, w stacknet.Way) { change(&have.Ways[w]) })
}

// value applies a keyword that has a value.
func (s *Step) value(key, v string) error {
	switch key {
	case "delay", "jitter":
		d, err := ParseTime(v)
		if err != nil {
			return err
		}
		s.add(func(i *stacknet.Impairment) {
			if key == "delay" {
				i.Netem.Delay = d
				return
			}
			i.Netem.Jitter = d
		})
	case "rate":
		r, err := ParseRate(v)
		if err != nil {
			return err
		}
		s.add(func(i *stacknet.Impairment) { i.Netem.Rate = r })
	case "limit":
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil || n == 0 {
			return fmt.Errorf("%q; expected a number of packets, at least 1", v)
		}
		s.limit = true
		s.add(func(i *stacknet.Impairment) { i.Netem.Limit = uint32(n) })
	case "seed":
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n > stacknet.MaxSeed {
			return fmt.Errorf("%q; expected a number from 1 to %d, or 0 for none", v, uint64(stacknet.MaxSeed))
		}
		s.seed = n != 0
		s.add(func(i *stacknet.Impairment) { i.Netem.Seed = n })
	default:
		p, err := ParsePercent(v)
		if err != nil {
			return err
		}
		s.add(func(i *stacknet.Impairment) {
			*map[string]*float64{
				"loss": &i.Netem.Loss, "duplicate": &i.Netem.Duplicate, "reorder": &i.Netem.Reorder, "corrupt": &i.Netem.Corrupt,
			}[key] = p
		})
	}
	return nil
}

// quantity splits a number from the unit after it.
func quantity(v string) (n float64, unit string, ok bool) {
	i := strings.IndexFunc(v, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(v)
	}
	n, err := strconv.ParseFloat(v[:i], 64)
	return n, strings.ToLower(v[i:]), err == nil && !math.IsInf(n, 0)
}

// mostDelay is the maximum delay. No network has a longer one.
const mostDelay = time.Hour

// bare reports whether v is a number without a unit, other than 0.
func bare(v string) bool {
	n, unit, ok := quantity(v)
	return ok && unit == "" && n != 0
}

// ParseTime parses a time like tc(8), but requires the unit. A number alone would be
// microseconds in tc(8), and milliseconds in the mind of most users.
func ParseTime(v string) (time.Duration, error) {
	if bare(v) {
		return 0, fmt.Errorf("%q: a time requires a unit, such as %sms", v, v)
	}
	n, unit, ok := quantity(v)
	scale, known := map[string]time.Duration{
		"s": time.Second, "sec": time.Second, "secs": time.Second,
		"ms": time.Millisecond, "msec": time.Millisecond, "msecs": time.Millisecond,
		"us": time.Microsecond, "usec": time.Microsecond, "usecs": time.Microsecond, "": time.Microsecond,
		"ns": time.Nanosecond, "nsec": time.Nanosecond, "nsecs": time.Nanosecond,
	}[unit]
	if !ok || !known || n*float64(scale) > float64(mostDelay) {
		return 0, fmt.Errorf("%q; expected a time such as 80ms, at most %v", v, mostDelay)
	}
	return time.Duration(math.Round(n * float64(scale))), nil
}

// ParsePercent parses a probability like tc(8). Both 2% and 2 mean one in fifty. A
// number below 1 requires the sign: without it, 0.01 could also be a probability.
func ParsePercent(v string) (float64, error) {
	n, unit, ok := quantity(v)
	if bare(v) && n < 1 {
		return 0, fmt.Errorf("%q: a percentage below 1 requires its sign: %s%%, or %s%% if it is a probability", v, v, strconv.FormatFloat(math.Round(n*1e10)/1e8, 'f', -1, 64))
	}
	if !ok || unit != "" && unit != "%" || n > 100 {
		return 0, fmt.Errorf("%q; expected a percentage such as 2%%, from 0%% to 100%%", v)
	}
	return n / 100, nil
}

// ParseRate parses a rate like tc(8) and returns it in bit/s, but requires the unit. The
// unit bps means bytes per second.
func ParseRate(v string) (uint64, error) {
	if bare(v) {
		return 0, fmt.Errorf("%q: a rate requires a unit, such as %smbit", v, v)
	}
	n, unit, ok := quantity(v)
	scale := 1.0
	switch {
	case strings.HasSuffix(unit, "bit"):
		unit = strings.TrimSuffix(unit, "bit")
	case strings.HasSuffix(unit, "bps"):
		unit, scale = strings.TrimSuffix(unit, "bps"), 8
	case unit != "":
		ok = false
	}
	prefix, known := map[string]float64{
		"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40,
	}[unit]
	n *= scale * prefix
	// netem counts bytes per second, so it would round a smaller rate to zero.
	if !ok || !known || n != 0 && (n < 8 || n > 1e15) {
		return 0, fmt.Errorf("%q; expected a rate such as 20mbit, or 0 for no limit", v)
	}
	return uint64(math.Round(n)), nil
}
