// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is the form of the value of a setting in a configuration file.
type Kind int

// Kinds of values.
const (
	Text       Kind = iota // a string
	Size                   // a string such as "64M", or a number of bytes
	Number                 // a number
	Switch                 // true or false
	Texts                  // a string or an array of strings
	Numbers                // a number or an array of numbers
	Interfaces             // an array of objects or of specifications
	Sysctls                // an object of names and values
)

// list reports whether a setting of this kind can have several values.
func (k Kind) list() bool { return k >= Texts }

// Setting describes one setting of a run. The readers of files, variables and
// flags, the JSON Schema, the help and the reference are derived from this
// description.
type Setting struct {
	Key     string // name in a configuration file
	Flag    string // name of the flag without the dashes; "": only in files
	Kind    Kind
	Form    string // form of a value; "": the help describes it
	Help    string
	Choices []string // all valid values
	Example string   // example of a value in a list
	Default string   // default value; "": none
	Least   int      // minimum of a Number
	Most    int      // maximum of a Number, or maximum number of values in a list

	run bool // the setting is specific to one run, and so not allowed in a profile
	add func(r *Run, word string) error
}

// Variable returns the setting's environment variable: LKLRUN_ followed by the name
// of its flag in capital letters.
func (s *Setting) Variable() string {
	if s.Flag == "" {
		return ""
	}
	return "LKLRUN_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// List reports whether the setting can have several values.
func (s *Setting) List() bool { return s.Kind.list() }

// DefaultStack is the stack of a run whose configuration names none.
const DefaultStack = "mptcp"

// Limits of lists and of the delay before the command starts.
const (
	MaxInterfaces = 8 // the maximum number of MPTCP endpoints (MPTCP_PM_ADDR_MAX, net/mptcp/protocol.h)
	MaxSysctls    = 1024
	MaxDelay      = 30000000 // maximum delay in microseconds
)

// NoProfile is the name that selects no profile. It overrides the profile that a
// configuration file names.
const NoProfile = "none"

// removed lists settings of earlier versions, with the reason of their removal.
var removed = map[string]string{
	"lane": "lklrun no longer shares memory with the program",
}

// settings lists the settings in the order of output.
var settings = []Setting{
	{Key: "stack", Flag: "stack", Form: "NAME", Default: DefaultStack, Help: "the stack: a name or the path of a directory",
		add: func(r *Run, w string) error { r.Stack = w; return nil }},
	{Key: "profile", Flag: "profile", Form: "NAME", Help: "apply a named set of settings; \"lklrun profiles\" lists them", run: true,
		add: func(r *Run, w string) error { r.Profile = w; return nil }},
	{Key: "interfaces", Flag: "if", Kind: Interfaces, Most: MaxInterfaces, Form: "SPEC", Help: "add an interface to the stack",
		add: func(r *Run, w string) error { return appended(&r.Interfaces, w, ParseInterface) }},
	{Key: "iface", Flag: "iface", Kind: Texts, Most: MaxInterfaces, Form: "DEVICE,...", Example: "wlan0", Help: "share these devices of the host (raw or rawip, chosen by device)",
		add: addIfaces},
	{Key: "sysctl", Flag: "sysctl", Kind: Sysctls, Most: MaxSysctls, Form: "NAME=VALUE", Help: "change a setting of the stack's kernel",
		add: addSysctl},
	{Key: "dns", Flag: "dns", Kind: Texts, Form: "ADDRESS", Example: "192.0.2.53", Help: "use this name server (default: the host's)",
		add: func(r *Run, w string) error { return appended(&r.DNS, w, ParseDNS) }},
	{Key: "add_host", Flag: "add-host", Kind: Texts, Most: MaxAddHosts, Form: "NAME=ADDRESS", Example: "server=192.0.2.1", Help: "add this name to the program's /etc/hosts",
		add: func(r *Run, w string) error { return appended(&r.AddHosts, w, ParseAddHost) }},
	{Key: "host_net", Flag: "host-net", Kind: Texts, Most: MaxHostNets, Form: "CIDR[:PORT]", Example: "10.0.0.0/8", Help: "reach this destination over the host's stack",
		add: func(r *Run, w string) error { return appended(&r.HostNets, w, ParseHostNet) }},
	{Key: "allow", Flag: "allow", Kind: Texts, Most: MaxAllows, Form: "NAME|CIDR[:PORTS]", Example: "*.example.com:443", Help: "reach only this destination (and others of --allow) through the gateway",
		add: func(r *Run, w string) error { return appended(&r.Allows, w, ParseAllow) }},
	{Key: "egress", Flag: "egress", Form: "FILE", Help: "reach only the destinations of this policy (and of --allow); audit:FILE permits all and writes a policy for them",
		add: parseEgress},
	{Key: "egress_log", Flag: "egress-log", Form: "FILE", Help: "with --egress or --allow: append each decision to FILE, as a line of JSON", run: true,
		add: func(r *Run, w string) error { r.EgressLog = w; return nil }},
	{Key: "proxy", Flag: "proxy", Form: "URL", Help: "reach the network only through this proxy (socks5:// or http://), which also resolves names",
		add: func(r *Run, w string) (err error) { r.Proxy = w; _, err = ParseProxy(w); return err }},
	{Key: "publish", Flag: "publish", Kind: Texts, Most: MaxPublish, Form: "PORTS", Example: "8080:80", Help: "publish a port of the program on the host",
		add: func(r *Run, w string) error { return appended(&r.Publish, w, ParsePublish) }},
	{Key: "listen", Flag: "listen", Kind: Numbers, Most: MaxListen, Form: "PORT", Help: "with a shared address: a port the program listens on",
		add: func(r *Run, w string) error { return appended(&r.Listen, w, ParsePort) }},
	{Key: "port_range", Flag: "port-range", Form: "PORTS", Default: strconv.Itoa(DefaultPorts), Help: "with a shared address: local ports of connections, a count or FIRST-LAST",
		add: func(r *Run, w string) (err error) { r.PortRange, err = ParsePortRange(w); return err }},
	{Key: "rst_guard", Flag: "rst-guard", Form: "WAY", Default: GuardAuto, Choices: []string{GuardAuto, GuardNFT, GuardIPTables, GuardOff, GuardPrint},
		Help: "with a shared address: how to suppress the host's RSTs",
		add:  func(r *Run, w string) (err error) { r.RSTGuard, err = ParseRSTGuard(w); return err }},
	{Key: "user", Flag: "user", Form: "NAME", Help: "run the program as this user (or UID:GID) without capabilities; requires root",
		add: func(r *Run, w string) error { r.User = w; return nil }},
	{Key: "name", Flag: "name", Form: "NAME", Help: "the run's name for lklctl (default: from the command)", run: true,
		add: func(r *Run, w string) error { r.Name = w; return nil }},
	{Key: "mem", Flag: "mem", Kind: Size, Form: "SIZE", Help: "memory of the stack, such as 64M or 1G (default: the stack's)",
		add: func(r *Run, w string) (err error) { r.Mem, err = ParseMem(w); return err }},
	{Key: "cmdline", Flag: "cmdline", Form: "WORDS", Help: "boot parameters for the stack's kernel",
		add: addCmdline},
	{Key: "engine", Flag: "engine", Default: EngineAuto, Choices: []string{EngineAuto, EngineSupervise, EnginePreload, EngineTrace},
		Help: "how to intercept the program's socket calls",
		add:  func(r *Run, w string) (err error) { r.Engine, err = ParseEngine(w); return err }},
	{Key: "spin", Flag: "spin", Kind: Number, Form: "USEC", Most: MaxSpin, Default: strconv.Itoa(DefaultSpin), Help: "poll for packets this many microseconds before sleeping",
		add: addNumber(func(r *Run) *int { return &r.Spin }, 0, MaxSpin, "microseconds")},
	{Key: "coalesce", Flag: "coalesce", Kind: Number, Form: "USEC", Most: MaxCoalesce, Default: "0", Help: "let packets gather this many microseconds while data flows one way, to save CPU time",
		add: addNumber(func(r *Run) *int { return &r.Coalesce }, 0, MaxCoalesce, "microseconds")},
	{Key: "require", Flag: "require", Choices: []string{RequireStack, RequireMPTCP},
		Help: "exit with 123 unless the program used the stack, or only MPTCP",
		add:  func(r *Run, w string) (err error) { r.Require, err = ParseRequire(w); return err }},
	{Key: "detach", Flag: "detach", Kind: Switch, Help: "run in the background until the last process ends", run: true,
		add: addSwitch(func(r *Run) *bool { return &r.Detach })},
	{Key: "log", Flag: "log", Form: "FILE", Help: "with --detach: write the program's output to FILE", run: true,
		add: func(r *Run, w string) error { r.Log = w; return nil }},
	{Key: "wait_all", Flag: "wait-all", Kind: Switch, Help: "end with the command's last process, not the first",
		add: addSwitch(func(r *Run) *bool { return &r.WaitAll })},
	{Key: "capture", Flag: "capture", Kind: Texts, Most: MaxCaptures, Form: "FILE", Example: "trace.pcapng,snap=128", Help: "write all packets to a pcapng file, or keep the last ones in memory (ring)", run: true,
		add: addCapture},
	{Key: "tls_keys", Flag: "tls-keys", Kind: Switch, Help: "put the secrets of the program's TLS connections into captures, to decrypt them", run: true,
		add: addSwitch(func(r *Run) *bool { return &r.TLSKeys })},
	{Key: "explain", Flag: "explain", Kind: Switch, Help: "say at the end what limited the program's connections",
		add: addSwitch(func(r *Run) *bool { return &r.Explain })},
	{Key: "verbose", Flag: "verbose", Kind: Switch, Help: "report each step with its time, and final statistics",
		add: addSwitch(func(r *Run) *bool { return &r.Verbose })},
	{Key: "quiet", Flag: "quiet", Kind: Switch, Help: "do not print notes at the start",
		add: addSwitch(func(r *Run) *bool { return &r.Quiet })},
	{Key: "delay", Kind: Number, Form: "USEC", Most: MaxDelay, Help: "wait this many microseconds before starting the program",
		add: addNumber(func(r *Run) *int { return &r.Delay }, 0, MaxDelay, "microseconds")},
	{Key: "mount", Kind: Texts, Most: 16, Form: "TYPE", Example: "debugfs", Help: "mount this file system in the stack, at /TYPE",
		add: func(r *Run, w string) error { return appended(&r.Mount, w, parseFSType) }},
	{Key: "dump", Kind: Texts, Most: 256, Form: "PATH", Example: "/proc/net/snmp", Help: "print this file of the stack when the program ends",
		add: func(r *Run, w string) error { return appended(&r.Dump, w, parseStackPath) }},
	{Key: "command", Kind: Texts, Form: "WORD", Example: "curl", Help: "the program and its arguments, if the command line has none", run: true,
		add: func(r *Run, w string) error { r.Command = append(r.Command, w); return nil }},
}

// Settings lists all settings.
func Settings() []Setting { return slices.Clone(settings) }

func findSetting(key string) *Setting {
	n := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
	if n < 0 {
		return nil
	}
	return &settings[n]
}

func appended[T any](list *[]T, word string, parse func(string) (T, error)) error {
	v, err := parse(word)
	if err == nil {
		*list = append(*list, v)
	}
	return err
}

// addIfaces adds comma-separated names of devices.
func addIfaces(r *Run, word string) error {
	for name := range strings.SplitSeq(word, ",") {
		if err := CheckDevice(name); err != nil {
			return fmt.Errorf("%q: %w", word, err)
		}
		if slices.Contains(r.Ifaces, name) {
			return fmt.Errorf("%q: %s: given twice", word, name)
		}
		r.Ifaces = append(r.Ifaces, name)
	}
	return nil
}

func addSysctl(r *Run, word string) error {
	s, err := ParseSysctl(word)
	if err != nil {
		return err
	}
	// A later setting replaces an earlier one of the same name, and is applied in
	// the later position.
	r.Sysctls = append(slices.DeleteFunc(r.Sysctls, func(o Sysctl) bool { return o.Name == s.Name }), s)
	return nil
}

func addNumber(field func(*Run) *int, least, most int, unit string) func(*Run, string) error {
	return func(r *Run, word string) error {
		n, err := strconv.Atoi(word)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%q; expected %s, from %d to %d", word, unit, least, most)
		}
		*field(r) = n
		return nil
	}
}

func addSwitch(field func(*Run) *bool) func(*Run, string) error {
	return func(r *Run, word string) (err error) {
		*field(r), err = ParseSwitch(word)
		return err
	}
}

// ParseSwitch parses on or off, and other common words for them.
func ParseSwitch(s string) (bool, error) {
	switch s {
	case "on", "true", "yes", "1":
		return true, nil
	case "off", "false", "no", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q; expected on or off", s)
}

// maxCmdline is the maximum length of kernel parameters in the control
// protocol.
const maxCmdline = 1024

// addCmdline adds kernel parameters. It rejects the memory size, because lklrun
// sets it.
func addCmdline(r *Run, word string) error {
	if len(word) > maxCmdline {
		return fmt.Errorf("%d characters; the limit is %d", len(word), maxCmdline)
	}
	if strings.ContainsFunc(word, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fmt.Errorf("%q has characters that are invalid on a kernel command line", word)
	}
	for _, p := range strings.Fields(word) {
		if strings.HasPrefix(p, "mem=") {
			return fmt.Errorf("%q: use the setting mem to set the memory size", p)
		}
	}
	r.Cmdline = word
	return nil
}

func parseFSType(s string) (string, error) {
	if s == "" || len(s) > 32 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
		return "", fmt.Errorf("%q is not a file system type; expected one such as debugfs", s)
	}
	return s, nil
}

func parseStackPath(s string) (string, error) {
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "\x00\n") {
		return "", fmt.Errorf("%q; expected a path in the stack, such as /proc/net/snmp", s)
	}
	return s, nil
}

var errNoWords = errors.New("empty value; remove it or add a value")
