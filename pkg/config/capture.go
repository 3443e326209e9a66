// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of the snap length, in bytes. The minimum fits the headers of
// Ethernet, IPv4 and TCP with their options. The maximum is tcpdump's own
// default, for whole packets.
const (
	MinSnap     = 60
	MaxSnap     = 262144
	MaxCaptures = 4
)

// CaptureRing is given in place of a file name. It selects a ring in memory that
// keeps the last packets for a bundle.
const CaptureRing = "ring"

// The limits and the default of a ring's size, in bytes.
const (
	MinRing  = 64 << 10
	MaxRing  = 64 << 20
	RingSize = 1 << 20
	RingSnap = 128
)

// Capture describes a file for the packets of a run from its start, or a ring for
// the last packets.
type Capture struct {
	File       string   // path of the file, or CaptureRing
	Size       uint64   // maximum memory of a ring, in bytes; 0: RingSize
	Snap       int      // bytes to keep of each packet; 0: all, or RingSnap in a ring
	Interfaces []string // names in the stack; empty: all that lklrun creates
	Filter     string   // filter in the language of pcap-filter(7); empty: all packets
}

const captureForm = "expected FILE[,snap=BYTES][,if=NAME]...[,filter=EXPRESSION], or ring[,size=SIZE]... instead of FILE"

// ParseCapture parses FILE[,snap=BYTES][,if=NAME]...[,filter=EXPRESSION], or
// ring[,size=SIZE] with the same keys. The filter comes last, because it can
// contain commas.
func ParseCapture(s string) (Capture, error) {
	var c Capture
	rest, filter, filtered := strings.Cut(s, ",filter=")
	c.Filter = strings.TrimSpace(filter)
	parts := strings.Split(rest, ",")
	c.File = parts[0]
	err := c.checkFile()
	if err == nil && filtered && c.Filter == "" {
		err = errors.New("filter: no value; remove it to capture all packets")
	}
	for _, part := range parts[1:] {
		if err != nil {
			break
		}
		err = c.set(part)
	}
	if err != nil {
		return Capture{}, fmt.Errorf("%q: %w", s, err)
	}
	return c, nil
}

func (c *Capture) checkFile() error {
	switch {
	case c.File == "":
		return errors.New("no file; " + captureForm)
	case c.File == "-":
		return errors.New("standard output belongs to the command; pass a file name, or use lklctl capture -w -")
	case strings.ContainsAny(c.File, "\x00\n"):
		return errors.New("invalid character in the file name")
	case strings.Contains(c.File, "=") && !strings.Contains(c.File, "/"):
		return errors.New("the file name must come first; " + captureForm)
	}
	return nil
}

// Ring reports whether the target is a ring in memory.
func (c *Capture) Ring() bool { return c.File == CaptureRing }

// set applies one KEY=VALUE.
func (c *Capture) set(part string) error {
	name, value, _ := strings.Cut(part, "=")
	if value == "" && (name == "snap" || name == "if" || name == "size") {
		return fmt.Errorf("%s: no value; %s", name, captureForm)
	}
	switch name {
	case "size":
		if !c.Ring() {
			return errors.New("size: only for a ring; a file gets all packets")
		}
		n, err := parseSize(value, MinRing, MaxRing)
		if err != nil {
			return fmt.Errorf("size: %w", err)
		}
		if c.Size != 0 {
			return errors.New("size: given twice")
		}
		c.Size = n
	case "snap":
		n, err := strconv.Atoi(value)
		if err != nil || n < MinSnap || n > MaxSnap {
			return fmt.Errorf("snap: %q; expected bytes, from %d to %d", value, MinSnap, MaxSnap)
		}
		if c.Snap != 0 {
			return errors.New("snap: given twice")
		}
		c.Snap = n
	case "if":
		if err := CheckDevice(value); err != nil {
			return fmt.Errorf("if: %w", err)
		}
		if slices.Contains(c.Interfaces, value) {
			return fmt.Errorf("if: %s: given twice", value)
		}
		c.Interfaces = append(c.Interfaces, value)
	default:
		return fmt.Errorf("%q: unknown key; expected snap, if, size (ring only), or filter as the last key", name)
	}
	return nil
}

// String formats the capture for ParseCapture.
func (c Capture) String() string {
	s := c.File
	if c.Size != 0 {
		s += ",size=" + FormatMem(c.Size)
	}
	if c.Snap != 0 {
		s += ",snap=" + strconv.Itoa(c.Snap)
	}
	for _, name := range c.Interfaces {
		s += ",if=" + name
	}
	if c.Filter != "" {
		s += ",filter=" + c.Filter
	}
	return s
}

// MarshalText formats the capture for ParseCapture.
func (c Capture) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText parses the output of MarshalText.
func (c *Capture) UnmarshalText(text []byte) (err error) {
	*c, err = ParseCapture(string(text))
	return err
}

// addCapture adds a capture. It rejects a second one to the same file, because
// two packet streams cannot share a file.
func addCapture(r *Run, word string) error {
	c, err := ParseCapture(word)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(r.Captures, func(o Capture) bool { return o.File == c.File }) {
		if c.Ring() {
			return errors.New("ring: given twice; a file of that name is ./ring")
		}
		return fmt.Errorf("%q: the same file is given twice", c.File)
	}
	r.Captures = append(r.Captures, c)
	return nil
}
