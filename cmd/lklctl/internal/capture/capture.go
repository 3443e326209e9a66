// SPDX-License-Identifier: Apache-2.0

// Package capture has the verbs capture and extcap: packets of the stack.
package capture

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/pkg/capture"
)

// captureOptions are the verb's flags.
type captureOptions struct {
	names      []string // of instances
	all        bool
	interfaces []string
	file       string
	count      uint64
	snaplen    int
	seconds    uint
	megabytes  uint
	files      uint
	buffer     uint // in KiB
	direction  string
	format     string
	unbuffered bool
	quiet      bool

	stamps, verbose int
	link, abs       bool
	hex, text       bool
}

// Command is the verb capture.
func Command(c *verb.Call) *cobra.Command {
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture [-i IF]... [-w FILE] [-c N] [-s BYTES] [FILTER]",
		Short: "capture packets inside the stack",
		Long: `capture shows or writes the packets of an instance's stack, from now until
Ctrl-C, the end of the instance, or -c packets. It sees what tcpdump(8) would
see on the stack, and takes tcpdump's options and filters (pcap-filter(7)). The
filter is compiled by libpcap and runs in the stack.

Without -w, tcpdump(8) prints a line for each packet; it must be installed on
this machine. lklctl adds the interface, the direction, and the process and
MPTCP connection where they are known.

With -w packets go into a file for Wireshark, tshark and tcpdump: pcapng, with
the interfaces' names and addresses, each packet's direction, process and MPTCP
connection where they are known, and what was dropped; or the classic pcap,
which has none of these, where the name ends in .pcap or --format says so. -w -
writes to standard output.

Without -i all interfaces are captured, and those that come later. The program
does not wait for whoever reads: packets for which the stack's buffer (-B) has
no room are dropped from the capture, and counted.

At the end a line on standard error tells how many packets were captured, how
many the filter let through, and how many were dropped.`,
		Example: `  lklctl capture
  lklctl capture -i eth0 -c 20 'tcp port 443'
  lklctl capture -w trace.pcapng -s 128
  lklctl capture -w - | wireshark -k -i -
  lklctl capture -w 'day-%H.pcapng' -G 3600 -W 24
  lklctl capture -w ring -C 100 -W 10`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runCapture(cmd.Context(), c, &o, strings.Join(args, " "))
		},
	}
	cmd.Flags().StringArrayVarP(&o.names, "name", "n", nil, "the instance `NAME`; may be given again; not needed when only one runs")
	cmd.Flags().BoolVar(&o.all, "all-instances", false, "capture of all that run")
	cmd.Flags().VarP(&c.Output, "output", "o", "print a table or JSON")
	o.flags(cmd.Flags())
	verb.Must(cmd.RegisterFlagCompletionFunc("interface", c.Complete(verb.LinkNames)))
	verb.Must(cmd.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions([]cobra.Completion{"in", "out", "inout"}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]cobra.Completion{"pcapng", "pcap"}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Document(cmd, captureRow{})
	return cmd
}

func (o *captureOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.interfaces, "interface", "i", nil, "capture on `IF`, a name or number; may be given again")
	f.StringVarP(&o.file, "write", "w", "", "write to `FILE`; - for standard output")
	f.Uint64VarP(&o.count, "count", "c", 0, "end after `N` packets")
	f.IntVarP(&o.snaplen, "snapshot-length", "s", 0, "keep `BYTES` of each packet; 0 for all of it")
	f.UintVarP(&o.seconds, "rotate-seconds", "G", 0, "begin a new file every `SEC` seconds; FILE has a strftime(3) format")
	f.UintVarP(&o.megabytes, "rotate-size", "C", 0, "begin a new file after `MB` megabytes")
	f.UintVarP(&o.files, "files", "W", 0, "with -C: a ring of `N` files; with -G: end after N files")
	f.UintVarP(&o.buffer, "buffer-size", "B", capture.DefaultBuffer>>10, "the buffer in the stack for each interface, in `KIB`")
	f.StringVarP(&o.direction, "direction", "Q", "inout", "capture `in`, out, or inout")
	f.StringVar(&o.format, "format", "", "write `pcapng` or pcap; by default as FILE's name ends")
	f.BoolVarP(&o.unbuffered, "packet-buffered", "U", false, "write packets to FILE as they come")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "no line at the end")
	f.CountVarP(&o.stamps, "no-time", "t", "no time in a line; -tt seconds since 1970, -ttt since the packet before, -tttt with the date")
	f.BoolVarP(&o.link, "link", "e", false, "show the link layer's header in a line")
	f.CountVarP(&o.verbose, "verbose", "v", "show more of each packet; -vv and -vvv even more")
	f.BoolVarP(&o.abs, "absolute", "S", false, "show sequence numbers as they are in the packet")
	f.BoolVarP(&o.hex, "hex", "X", false, "show a packet's bytes below its line")
	f.BoolVarP(&o.text, "ascii", "A", false, "show a packet's bytes below its line, as text")
}

// tcpdump returns the flags for tcpdump. With -o json, those for several lines per packet
// have no effect.
func (o *captureOptions) tcpdump(json bool) []string {
	var flags []string
	if !json {
		flags = slices.Repeat([]string{"-v"}, o.verbose)
	}
	for _, f := range []struct {
		given bool
		flag  string
	}{{o.link, "-e"}, {o.abs, "-S"}, {o.hex && !json, "-X"}, {o.hex && o.link && !json, "-X"}, {o.text && !o.hex && !json, "-A"}} {
		if f.given {
			flags = append(flags, f.flag)
		}
	}
	return flags
}

// take returns the packets to capture. Its errors are errors of the command
// line.
func (o *captureOptions) take(filter string) (capture.Take, error) {
	t := capture.Take{Names: o.interfaces, Snaplen: o.snaplen, Filter: filter, Buffer: int(o.buffer) << 10, Annotate: true}
	switch o.direction {
	case "in":
		t.Direction = capture.In
	case "out":
		t.Direction = capture.Out
	case "inout":
	default:
		return t, exit.Usagef("-Q %q; expected in, out or inout", o.direction)
	}
	switch {
	case o.snaplen < 0 || o.snaplen > capture.MaxSnaplen:
		return t, exit.Usagef("-s %d; expected 1 to %d bytes, or 0 for whole packets", o.snaplen, capture.MaxSnaplen)
	case o.buffer < 16 || o.buffer > maxBuffer:
		return t, exit.Usagef("-B %d; expected 16 to %d KiB", o.buffer, maxBuffer)
	case o.file == "" && (o.seconds > 0 || o.megabytes > 0 || o.files > 0 || o.format != ""):
		return t, exit.Usagef("-G, -C, -W and --format are about files: say -w FILE too")
	case o.file == "-" && (o.seconds > 0 || o.megabytes > 0):
		return t, exit.Usagef("standard output (-w -) cannot be divided into files: leave -G and -C out, or name a file")
	case o.files > 0 && o.seconds == 0 && o.megabytes == 0:
		return t, exit.Usagef("-W %d says how many files, but not when a new one begins: say -G or -C too", o.files)
	case o.format != "" && o.format != string(capture.FormatPcapng) && o.format != string(capture.FormatPcap):
		return t, exit.Usagef("--format %q; expected pcapng or pcap", o.format)
	case t.Every() && len(o.interfaces) > 1:
		return t, exit.Usagef("-i any means all interfaces: leave the others out")
	}
	return t, nil
}

// maxBuffer is the maximum of -B in KiB, because the buffer uses the stack's
// memory.
const maxBuffer = 1 << 20

// fileOptions returns the files to write.
func (o *captureOptions) fileOptions(t capture.Take, several bool) capture.FileOptions {
	f := capture.FileOptions{
		Path: o.file, Format: capture.Format(o.format),
		Several: several || t.Every() || len(t.Names) > 1,
		Every:   time.Duration(o.seconds) * time.Second, Size: int64(o.megabytes) * 1e6, Count: int(o.files),
		Application: "lklctl capture", PerBatch: o.unbuffered || o.file == "-",
	}
	if f.Format == "" {
		f.Format = capture.FormatOf(o.file)
	}
	return f
}
