// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/ui/tcpdump"
	"github.com/lklrun/lklrun/pkg/capture"
)

// Tcpdump returns the verb tcpdump.
func Tcpdump(c *verb.Call) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tcpdump [ARG]...",
		Short: "run tcpdump(8) on the packets of a stack",
		Long: `tcpdump captures packets inside the stack, and passes them to the tcpdump of
this machine. All its flags work, except -r. The stack applies the filter, -i,
-s, -B, -Q and -c. Without -i, tcpdump captures on the first interface.

Flags of lklctl precede the verb; the flags after it are those of tcpdump. -n is
always on: this machine does not know the names in the stack's network.`,
		Example:            "  lklctl tcpdump -i eth0 port 80\n  lklctl tcpdump -ni any -w trace.pcap -c 100\n  lklctl -n web tcpdump -vv icmp",
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && (args[0] == "--help" || args[0] == "-h") {
				return cmd.Help()
			}
			if c.Output != cli.OutputTable {
				return exit.Usagef("-o %s: %s prints the output of tcpdump unchanged; use capture -o %[1]s", c.Output, cmd.CommandPath())
			}
			d, err := parseTcpdump(args)
			if err != nil {
				return err
			}
			return d.run(cmd.Context(), c)
		},
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, toComplete string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 && strings.HasPrefix(args[len(args)-1], "-") && (strings.HasSuffix(args[len(args)-1], "i") || args[len(args)-1] == "--interface") {
			return c.Complete(verb.LinkNames)(cmd, args, toComplete)
		}
		return nil, cobra.ShellCompDirectiveDefault
	}
	return cmd
}

// dumping contains the arguments of the verb tcpdump: those for the capture, and the
// flags for tcpdump.
type dumping struct {
	captureOptions
	filter string
	pass   []string
	list   bool // list the interfaces
	only   bool // tcpdump prints something else than packets
}

// The short flags of tcpdump 4.99 with a value, and the long ones. Long flags may be
// shortened, and their value may be the next word.
const valued = "BCEFGMQTVWZcijmrswyz"

var longFlags = map[string]string{
	"buffer-size": "B", "count": "", "direction": "Q", "fp-type": "", "help": "h", "immediate-mode": "", "interface": "i", "ip-oneline": "", "lengths": "",
	"linktype": "y", "list-data-link-types": "L", "list-interfaces": "D", "list-remote-interfaces": "r", "micro": "", "monitor-mode": "", "nano": "",
	"no-optimize": "O", "no-promiscuous-mode": "p", "number": "#", "packet-buffered": "U", "print": "", "relinquish-privileges": "Z", "snapshot-length": "s",
	"time-stamp-precision": "", "time-stamp-type": "j", "version": "",
}

// longValued are the long flags with a value that have no short form.
var longValued = []string{"fp-type", "time-stamp-precision"}

// parseTcpdump parses a command line of tcpdump, in which flags and the words of the
// filter can alternate, as getopt_long(3) permits.
func parseTcpdump(args []string) (*dumping, error) {
	d := &dumping{captureOptions: captureOptions{buffer: capture.DefaultBuffer >> 10, direction: "inout"}}
	var words []string
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		next := func(flag string) (string, error) {
			if len(args) == 0 {
				return "", exit.Usagef("tcpdump %s: missing value", flag)
			}
			v := args[0]
			args = args[1:]
			return v, nil
		}
		var err error
		switch {
		case word == "--":
			words = append(words, args...)
			args = nil
		case strings.HasPrefix(word, "--"):
			err = d.long(word, next)
		case len(word) > 1 && word[0] == '-':
			err = d.short(word, next)
		default:
			words = append(words, word)
		}
		if err != nil {
			return nil, err
		}
	}
	if d.filter == "" {
		d.filter = strings.Join(words, " ")
	}
	return d, nil
}

// short parses a group of short flags.
func (d *dumping) short(word string, next func(string) (string, error)) error {
	for i := 1; i < len(word); i++ {
		flag, value := word[i:i+1], ""
		if strings.Contains(valued, flag) {
			if value = word[i+1:]; value == "" {
				var err error
				if value, err = next("-" + flag); err != nil {
					return err
				}
			}
			i = len(word)
		}
		if err := d.flag(flag, value); err != nil {
			return err
		}
	}
	return nil
}

// long parses a long flag.
func (d *dumping) long(word string, next func(string) (string, error)) error {
	name, value, given := strings.Cut(word[2:], "=")
	var found []string
	for full := range longFlags {
		if full == name {
			found = []string{full}
			break
		}
		if strings.HasPrefix(full, name) {
			found = append(found, full)
		}
	}
	if len(found) != 1 {
		return exit.Usagef("tcpdump has no flag --%s; see tcpdump(8)", name)
	}
	name = found[0]
	short := longFlags[name]
	takes := short != "" && strings.Contains(valued, short)
	for _, v := range longValued {
		takes = takes || v == name
	}
	if takes && !given {
		var err error
		if value, err = next("--" + name); err != nil {
			return err
		}
	}
	if short != "" {
		return d.flag(short, value)
	}
	d.only = d.only || name == "version"
	d.pass = append(d.pass, "--"+name)
	if takes {
		d.pass[len(d.pass)-1] += "=" + value
	}
	return nil
}

// flag applies a short flag, or passes it to tcpdump.
func (d *dumping) flag(flag, value string) error {
	number := func(most uint64) (uint64, error) {
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n > most {
			return 0, exit.Usagef("tcpdump -%s %q; expected a number from 0 to %d", flag, value, most)
		}
		return n, nil
	}
	switch flag {
	case "r", "V":
		return exit.Usagef("tcpdump -%s: reads a file, which needs no stack; use tcpdump itself", flag)
	case "i":
		d.interfaces = []string{value}
	case "s":
		n, err := number(capture.MaxSnaplen)
		d.snaplen = int(n)
		return err
	case "B":
		n, err := number(maxBuffer)
		d.buffer = uint(n)
		return err
	case "c":
		n, err := number(1 << 62)
		if err == nil && n == 0 {
			err = exit.Usagef("tcpdump -c 0; expected a number of packets, at least 1")
		}
		d.count = n
		return err
	case "Q":
		d.direction = value
	case "D":
		d.list = true
	case "F":
		text, err := os.ReadFile(value)
		if err != nil {
			return &exit.UsageError{Err: fmt.Errorf("tcpdump -F: %w", err)}
		}
		d.filter = strings.TrimSpace(string(text))
	case "d":
		d.only = true
		d.pass = append(d.pass, "-d")
	case "p", "I": // these are about the device, which the stack leaves as it is
	default:
		if strings.Contains(valued, flag) {
			d.pass = append(d.pass, "-"+flag, value)
			return nil
		}
		d.pass = append(d.pass, "-"+flag)
	}
	return nil
}

// run captures, and ends with the status of tcpdump.
func (d *dumping) run(ctx context.Context, c *verb.Call) error {
	take, err := d.take(d.filter)
	if err != nil {
		return err
	}
	take.Annotate = false
	if _, err := capture.Compile(d.filter, capture.LinkTypeEthernet, capture.MaxSnaplen); err != nil {
		return filterError(err)
	}
	attaching, cancel := context.WithTimeout(ctx, verb.QueryLimit)
	defer cancel()
	info, conn, err := c.Attach(attaching)
	if err != nil {
		return err
	}
	defer conn.Close()
	stack := packets.New(conn)
	have, err := stack.Interfaces(attaching)
	if err != nil {
		return err
	}
	if d.list {
		return listInterfaces(c, have)
	}
	if len(take.Names) == 0 {
		take.Names = []string{first(have)}
	}
	session, err := capture.NewSession(take)
	if err != nil {
		return err
	}
	if err := session.Add(attaching, stack, info.Name); err != nil {
		return captureError(info, err)
	}
	flags := d.pass
	if d.only && d.filter != "" {
		flags = append(flags, d.filter)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	pipe, err := tcpdump.StartPipe(flags, take.Every(), c.Stdout, c.Stderr, stop)
	if err != nil {
		return fmt.Errorf("%w; install it, or write a file with lklctl capture -w FILE", err)
	}
	on := take.Names[0]
	if !d.only {
		cli.Note(c.Stderr, verb.Program, "listening on %s of instance %q; press Ctrl-C to stop", on, info.Name)
	}
	r := &recorder{Handler: pipe, most: d.count}
	err = session.Run(ctx, r)
	end := pipe.Close()
	if !d.only {
		summary(c, r)
	}
	var status *exec.ExitError
	switch {
	case errors.As(end, &status):
		return &verb.EndError{End: exit.End{Status: max(status.ExitCode(), 1)}}
	case err != nil:
		return err
	}
	return end
}

// first returns the interface that tcpdump chooses: the first one that is not the
// loopback device.
func first(have []capture.Interface) string {
	for _, i := range have {
		if !i.Loopback {
			return i.Name
		}
	}
	return capture.Any
}

// listInterfaces prints the interfaces as tcpdump -D does.
func listInterfaces(c *verb.Call, have []capture.Interface) error {
	n := 1
	for _, loopback := range []bool{false, true} {
		for _, i := range have {
			if i.Loopback == loopback {
				if _, err := fmt.Fprintf(c.Stdout, "%d.%s\n", n, i.Name); err != nil {
					return err
				}
				n++
			}
		}
	}
	_, err := fmt.Fprintf(c.Stdout, "%d.%s (all interfaces)\n", n, capture.Any)
	return err
}
