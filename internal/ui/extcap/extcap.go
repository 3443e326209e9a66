// SPDX-License-Identifier: Apache-2.0

// Package extcap makes lklrun's interfaces available to Wireshark as external captures:
// extcap(4) and the output format of doc/README.extcap in Wireshark's sources. Wireshark
// runs the program with --extcap-interfaces, --extcap-dlts, --extcap-config and
// --capture. It reads the answers line by line. Each line is a word, followed by values
// in braces.
package extcap

import (
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Prefix is the prefix of the names of all interfaces in this package.
const Prefix = "lklrun"

// Interface is an entry in Wireshark's list of interfaces.
type Interface struct {
	Value   string // name for Wireshark: lklrun-web-eth0
	Display string // text that Wireshark shows

	Place     instance.Place // place of the instances
	Instances []string       // instances whose stacks are captured
	Device    string         // interface in the stack; empty: all interfaces
	LinkType  capture.LinkType
}

// value is a value in a line, with its key.
type value struct{ key, text string }

// sentence writes a line. It replaces braces and newlines in values, because Wireshark
// would interpret them as syntax.
func sentence(w io.Writer, word string, values ...value) error {
	clean := strings.NewReplacer("{", "(", "}", ")", "\n", " ", "\r", " ")
	var b strings.Builder
	b.WriteString(word + " ")
	for _, v := range values {
		fmt.Fprintf(&b, "{%s=%s}", v.key, clean.Replace(v.text))
	}
	b.WriteByte('\n')
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteInterfaces answers --extcap-interfaces.
func WriteInterfaces(w io.Writer, version string, all []Interface) error {
	if err := sentence(w, "extcap", value{"version", version}, value{"help", "https://github.com/lklrun/lklrun/blob/main/docs/how-to/capture.md"}, value{"display", "lklrun: stacks in user space"}); err != nil {
		return err
	}
	for _, i := range all {
		if err := sentence(w, "interface", value{"value", i.Value}, value{"display", i.Display}); err != nil {
			return err
		}
	}
	return nil
}

// WriteDLTs answers --extcap-dlts.
func WriteDLTs(w io.Writer, i Interface) error {
	// The number is libpcap's DLT_ value. The name is that of pcap-linktype(7).
	if i.LinkType == capture.LinkTypeRaw {
		return sentence(w, "dlt", value{"number", "12"}, value{"name", "RAW"}, value{"display", "Raw IP"})
	}
	return sentence(w, "dlt", value{"number", "1"}, value{"name", "EN10MB"}, value{"display", "Ethernet"})
}
