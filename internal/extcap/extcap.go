// SPDX-License-Identifier: Apache-2.0

// Package extcap speaks with Wireshark as one of its external captures: extcap(4)
// and the sentences of doc/README.extcap in Wireshark's sources. Wireshark runs
// the program with --extcap-interfaces, --extcap-dlts, --extcap-config and
// --capture, and reads its answers line by line: a word, and then values in
// braces.
package extcap

import (
	"fmt"
	"io"
	"strings"

	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Prefix begins the name of every interface here.
const Prefix = "lklrun"

// Interface is something to capture on, as Wireshark lists it.
type Interface struct {
	Value   string // its name for Wireshark: lklrun-web-eth0
	Display string // for people

	Place     instance.Place // where they are
	Instances []string       // whose stacks
	Device    string         // in the stack; empty: all there are
	LinkType  capture.LinkType
}

// value is one of a sentence's.
type value struct{ key, text string }

// sentence writes a line. A brace or the end of a line in a value would be one of
// the sentence's own.
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
	if err := sentence(w, "extcap", value{"version", version}, value{"help", "https://github.com/lklrun/lklrun/blob/main/docs/capture.md"}, value{"display", "lklrun: stacks in user space"}); err != nil {
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
	// The number is libpcap's for a DLT, the name as in pcap-linktype(7).
	if i.LinkType == capture.LinkTypeRaw {
		return sentence(w, "dlt", value{"number", "12"}, value{"name", "RAW"}, value{"display", "Raw IP"})
	}
	return sentence(w, "dlt", value{"number", "1"}, value{"name", "EN10MB"}, value{"display", "Ethernet"})
}
