// SPDX-License-Identifier: Apache-2.0

// Package capture contains the verbs capture and extcap: packets of the stack.
package capture

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lklrun/lklrun/cmd/lklctl/internal/verb"
	"github.com/lklrun/lklrun/internal/base/exit"
	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/pkg/capture"
)

// captureOptions contains the flags of the verb capture.
type captureOptions struct {
	names      []string // names of instances
	all        bool
	interfaces []string
	file       string
	count      uint64
	snaplen    int
	seconds    uint
	megabytes  uint
	files      uint
	buffer     uint // size of the buffer in KiB
	direction  string
	format     string
	unbuffered bool
	quiet      bool
	keys       bool

	stamps, verbose int
	link, abs       bool
	hex, text       bool
}

// Command returns the verb capture.
func Command(c *verb.Call) *cobra.Command {
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture [-i IF]... [-w FILE] [-c N] [-s BYTES] [FILTER]",
		Short: "capture packets inside the stack",
		Long: `capture prints or saves the packets of a stack until Ctrl-C, -c packets or the
end of the instance. Options and FILTER are those of tcpdump(8).`,
		Example: `  lklctl capture -i eth0 -c 20 'tcp port 443'
  lklctl capture -w trace.pcapng -s 128
  lklctl capture -w - | wireshark -k -i -`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := c.UntilSignal(cmd.Context())
			defer stop()
			return runCapture(ctx, c, &o, strings.Join(args, " "))
		},
	}
	cmd.Flags().StringArrayVarP(&o.names, "name", "n", nil, "select the instance `NAME`, if several run; repeatable")
	cmd.Flags().BoolVar(&o.all, "all-instances", false, "capture on all running instances")
	c.NetnsFlag(cmd.Flags())
	cli.OutputFlags(cmd.Flags(), &c.Output, "print a table or JSON")
	o.flags(cmd.Flags())
	verb.Must(cmd.RegisterFlagCompletionFunc("interface", c.Complete(verb.LinkNames)))
	verb.Must(cmd.RegisterFlagCompletionFunc("direction", cobra.FixedCompletions([]cobra.Completion{"in", "out", "inout"}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Must(cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions([]cobra.Completion{"pcapng", "pcap"}, cobra.ShellCompDirectiveNoFileComp)))
	verb.Document(cmd, captureRow{})
	return cmd
}

func (o *captureOptions) flags(f *pflag.FlagSet) {
	f.StringArrayVarP(&o.interfaces, "interface", "i", nil, "capture on `IF`, a name or number; repeatable (default: all)")
	f.StringVarP(&o.file, "write", "w", "", "write packets to `FILE`, or to standard output if FILE is -")
	f.Uint64VarP(&o.count, "count", "c", 0, "stop after `N` packets")
	f.IntVarP(&o.snaplen, "snapshot-length", "s", 0, "keep the first `BYTES` of each packet; 0 keeps all")
	f.UintVarP(&o.seconds, "rotate-seconds", "G", 0, "start a new file every `SEC` seconds; FILE may contain strftime(3) fields")
	f.UintVarP(&o.megabytes, "rotate-size", "C", 0, "start a new file after `MB` million bytes")
	f.UintVarP(&o.files, "files", "W", 0, "with -C, reuse `N` files as a ring; with -G, stop after N files")
	f.UintVarP(&o.buffer, "buffer-size", "B", capture.DefaultBuffer>>10, "set the size of the buffer in the stack for each interface, in `KIB`")
	f.StringVarP(&o.direction, "direction", "Q", "inout", "capture packets of the direction `in`, out or inout")
	f.StringVar(&o.format, "format", "", "write `pcapng` or pcap (default: by the extension of FILE)")
	f.BoolVarP(&o.unbuffered, "packet-buffered", "U", false, "write each packet to FILE as soon as it arrives")
	f.BoolVar(&o.keys, "tls-keys", false, "put the TLS secrets of a run with --tls-keys into FILE, to decrypt its connections")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print the summary")
	f.CountVarP(&o.stamps, "no-time", "t", "omit the time; -tt: seconds since 1970; -ttt: since the previous packet; -tttt: with the date")
	f.BoolVarP(&o.link, "link", "e", false, "print the link-layer header")
	f.CountVarP(&o.verbose, "verbose", "v", "print more details; -vv and -vvv print even more")
	f.BoolVarP(&o.abs, "absolute", "S", false, "print absolute sequence numbers")
	f.BoolVarP(&o.hex, "hex", "X", false, "print the bytes of each packet in hex and ASCII")
	f.BoolVarP(&o.text, "ascii", "A", false, "print the bytes of each packet in ASCII")
}

// tcpdump returns the flags for tcpdump. With -o json, flags that produce several lines
// per packet have no effect.
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

// take describes the packets to capture. It returns errors of the command line.
func (o *captureOptions) take(filter string) (capture.Take, error) {
	if n := slices.IndexFunc(o.names, func(name string) bool { return strings.HasPrefix(name, "-") }); n >= 0 {
		return capture.Take{}, exit.Usagef("-n %s: expected the name of an instance; capture always prints numbers, so tcpdump's -n is not needed", o.names[n])
	}
	t := capture.Take{Names: o.interfaces, Snaplen: o.snaplen, Filter: filter, Buffer: int(o.buffer) << 10, Annotate: true, Events: o.file != "", Some: o.all || len(o.names) > 1}
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
		return t, exit.Usagef("-G, -C, -W and --format require a file; add -w FILE")
	case o.keys && o.file == "":
		return t, exit.Usagef("--tls-keys requires a file; add -w FILE")
	case o.keys && o.fileOptions(t, false).Format == capture.FormatPcap:
		return t, exit.Usagef("--tls-keys: pcap has no place for secrets; write pcapng")
	case o.file == "-" && (o.seconds > 0 || o.megabytes > 0):
		return t, exit.Usagef("-w -: -G and -C cannot split standard output into files; remove them or name a file")
	case o.files > 0 && o.seconds == 0 && o.megabytes == 0:
		return t, exit.Usagef("-W %d: requires -C (size of a file) or -G (time per file); add one of them", o.files)
	case o.format != "" && o.format != string(capture.FormatPcapng) && o.format != string(capture.FormatPcap):
		return t, exit.Usagef("--format %q; expected pcapng or pcap", o.format)
	case t.Every() && len(o.interfaces) > 1:
		return t, exit.Usagef("-i any: selects all interfaces; remove the other -i")
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
		Application: "lklctl capture", PerBatch: o.unbuffered || o.file == "-", Private: o.keys,
	}
	if f.Format == "" {
		f.Format = capture.FormatOf(o.file)
	}
	return f
}
