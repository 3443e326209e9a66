// SPDX-License-Identifier: Apache-2.0

package extcap

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/pkg/capture"
)

// The limits of the size of the buffer in the stack, in KiB.
const (
	MinBuffer = 16
	MaxBuffer = 1 << 20
)

// OnlyOption is the option that selects among an instance's interfaces; the dialog can
// reload its values.
const OnlyOption = "only"

// argument is a field of the dialog that Wireshark shows for an interface.
type argument struct {
	call, display, tooltip string
	typ                    string
	more                   []value
	choices                []value // value and text
}

// arguments returns the fields of an interface's dialog. If the entry covers several
// interfaces, devices lists them.
func arguments(i Interface, devices []string) []argument {
	all := []argument{
		{
			call: "snap", display: "Bytes of each packet", tooltip: "Number of bytes to keep of each packet; 0 keeps all",
			typ: "integer", more: []value{{"range", fmt.Sprintf("0,%d", capture.MaxSnaplen)}, {"default", "0"}},
		},
		{
			call: "direction", display: "Direction", tooltip: "As seen by the program",
			typ: "selector", choices: []value{{"inout", "In and out"}, {"in", "In"}, {"out", "Out"}},
		},
		{
			call: "buffer", display: "Buffer (KiB)", tooltip: "Size of the buffer in the stack for each interface. If it is full, packets are dropped and counted",
			typ: "integer", more: []value{{"range", fmt.Sprintf("%d,%d", MinBuffer, MaxBuffer)}, {"default", strconv.Itoa(capture.DefaultBuffer >> 10)}},
		},
		{
			call: "owners", display: "Processes and MPTCP tokens", tooltip: "Add them as a comment to each packet, if known. Filter: frame.comment contains \"curl\"",
			typ: "boolean", more: []value{{"default", "true"}},
		},
	}
	if i.Device == "" {
		a := argument{
			call: OnlyOption, display: "Interface", tooltip: "One interface, or all, including those that are added later",
			typ: "selector", more: []value{{"reload", "true"}, {"placeholder", "Refresh"}},
			choices: []value{{capture.Any, "all"}},
		}
		for _, d := range devices {
			a.choices = append(a.choices, value{d, d})
		}
		all = append(all, a)
	}
	return all
}

// WriteConfig answers --extcap-config.
func WriteConfig(w io.Writer, i Interface, devices []string) error {
	all := arguments(i, devices)
	for n, a := range all {
		values := slices.Concat([]value{
			{"number", strconv.Itoa(n)}, {"call", "--" + a.call}, {"display", a.display}, {"tooltip", a.tooltip}, {"type", a.typ},
		}, a.more, []value{{"group", "Capture"}})
		if err := sentence(w, "arg", values...); err != nil {
			return err
		}
	}
	for n := range all {
		if err := all[n].write(w, n); err != nil {
			return err
		}
	}
	return nil
}

// write writes the choices of an argument.
func (a *argument) write(w io.Writer, number int) error {
	for n, c := range a.choices {
		values := []value{{"arg", strconv.Itoa(number)}, {"value", c.key}, {"display", c.text}}
		if n == 0 {
			values = append(values, value{"default", "true"})
		}
		if err := sentence(w, "value", values...); err != nil {
			return err
		}
	}
	return nil
}

// WriteReload answers --extcap-reload-option.
func WriteReload(w io.Writer, i Interface, devices []string, option string) error {
	all := arguments(i, devices)
	n := slices.IndexFunc(all, func(a argument) bool { return a.call == option })
	if n < 0 {
		return exit.Usagef("--extcap-reload-option %q: interface %s has no such option", option, i.Value)
	}
	return all[n].write(w, n)
}
