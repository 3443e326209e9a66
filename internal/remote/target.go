// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kinds of targets.
const (
	KindADB = "adb" // a device of the adb server
	KindSSH = "ssh" // a machine that ssh reaches
	KindAll = "all" // all devices of the adb server; see Expand
)

// Target is a device as the user names it.
type Target struct {
	Kind string // KindADB, KindSSH or KindAll
	Name string // a serial number (empty: the only device), or [USER@]HOST[:PORT]
}

// String returns the target in the form of --device. Messages and tables use the
// same form.
func (t Target) String() string {
	if t.Name == "" {
		return t.Kind
	}
	return t.Kind + ":" + t.Name
}

// Parse parses the value of --device: adb, adb:SERIAL, ssh:[USER@]HOST[:PORT],
// all, or a comma-separated list of these. The error is one line that names the
// invalid word and the expected form.
func Parse(spec string) ([]Target, error) {
	var all []Target
	for word := range strings.SplitSeq(spec, ",") {
		t, err := parse(strings.TrimSpace(word))
		if err != nil {
			return nil, err
		}
		if slices.Contains(all, t) {
			return nil, fmt.Errorf("%q: given twice; remove one", t)
		}
		all = append(all, t)
	}
	if len(all) > 1 && slices.Contains(all, Target{Kind: KindAll}) && slices.ContainsFunc(all, func(t Target) bool { return t.Kind == KindADB }) {
		return nil, fmt.Errorf("%q: all includes every adb device; remove the other adb devices", spec)
	}
	return all, nil
}

func parse(word string) (Target, error) {
	kind, name, named := strings.Cut(word, ":")
	t := Target{Kind: kind, Name: name}
	switch {
	case kind == KindADB && (!named || name != ""), kind == KindAll && !named:
		if strings.ContainsAny(name, " \t\n/\x00") {
			return t, fmt.Errorf("%q: invalid character in the serial number; `adb devices` lists the devices", word)
		}
		return t, nil
	case kind == KindSSH && name != "":
		if _, _, err := t.address(); err != nil {
			return t, fmt.Errorf("%q: %w", word, err)
		}
		return t, nil
	}
	return t, fmt.Errorf("%q; expected adb, adb:SERIAL, ssh:[USER@]HOST[:PORT], all, or a comma-separated list of these", word)
}

// address splits an ssh target into [USER@]HOST, as ssh(1) accepts it, and the
// port. The port is 0 if ssh's configuration decides. An IPv6 address with a
// port must be in brackets.
func (t Target) address() (destination string, port int, err error) {
	user, host, ok := strings.Cut(t.Name, "@")
	if !ok {
		user, host = "", t.Name
	}
	if n := strings.LastIndexByte(host, ':'); n >= 0 && (strings.Count(host, ":") == 1 || host[n-1] == ']') {
		port, err = strconv.Atoi(host[n+1:])
		if err != nil || port < 1 || port > 65535 {
			return "", 0, fmt.Errorf("%q is not a port; expected 1 to 65535", host[n+1:])
		}
		host = host[:n]
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	// ssh would interpret a word that begins with a dash as an option.
	if host == "" || strings.HasPrefix(host, "-") || strings.HasPrefix(user, "-") || ok && user == "" ||
		strings.ContainsAny(t.Name, " \t\n\x00'\"`$\\;&|<>()") {
		return "", 0, errors.New("not an ssh destination; expected [USER@]HOST[:PORT]")
	}
	if user != "" {
		host = user + "@" + host
	}
	return host, port, nil
}

// Expand replaces KindAll by the devices of adb. It returns an error if there is no
// device, or if a device cannot be used.
func Expand(ctx context.Context, targets []Target) ([]Target, error) {
	var all []Target
	for _, t := range targets {
		if t.Kind != KindAll {
			all = append(all, t)
			continue
		}
		devices, err := listADB(ctx)
		if err != nil {
			return nil, err
		}
		all = append(all, devices...)
	}
	return all, nil
}
