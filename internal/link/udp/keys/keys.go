// SPDX-License-Identifier: Apache-2.0

// Package keys reads and creates the key files of interfaces of type udp. A key
// file is a WireGuard configuration in the format of wg-quick(8), so each end of
// a tunnel can also be WireGuard itself.
package keys

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/pkg/config"
)

// Key is a key of WireGuard.
type Key [32]byte

// String formats the key as in a key file.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// Hex formats the key as in WireGuard's configuration protocol.
func (k Key) Hex() string { return hex.EncodeToString(k[:]) }

func parseKey(s string) (k Key, err error) {
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil || len(b) != len(k) {
		return k, errors.New("expected a key of 32 bytes in base64") // do not quote a secret
	}
	return Key(b), nil
}

// File is the content of a key file.
type File struct {
	Path    string
	Private Key
	Addrs   []netip.Prefix
	DNS     []netip.Addr
	MTU     int // 0: not given
	Peers   []Peer
	Open    bool // users other than the owner may read the file
}

// Peer is the other end of a tunnel.
type Peer struct {
	Public  Key
	Shared  Key            // a key that both ends have in addition; zero: none
	Allowed []netip.Prefix // the addresses behind the peer
}

// Read reads a key file. The error names the file and the remedy.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist; create keys with `lklrun gateway --new-key DIR`", path)
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read (%w)", path, errno.Errno(err))
	}
	f, err := parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w; expected a file that `lklrun gateway --new-key DIR` created", path, err)
	}
	f.Path = path
	if st, err := os.Stat(path); err == nil {
		f.Open = st.Mode().Perm()&0o077 != 0
	}
	return f, nil
}

// parser reads a key file line by line.
type parser struct {
	file    *File
	section string
}

func parse(text string) (*File, error) {
	p := parser{file: &File{}}
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	switch f := p.file; {
	case f.Private == Key{}:
		return nil, errors.New("no PrivateKey")
	case len(f.Addrs) == 0:
		return nil, errors.New("no Address")
	case slices.ContainsFunc(f.Peers, func(p Peer) bool { return p.Public == Key{} }):
		return nil, errors.New("a [Peer] without PublicKey")
	}
	return p.file, nil
}

func (p *parser) line(line string) error {
	if strings.HasPrefix(line, "[") {
		p.section = strings.ToLower(line)
		switch p.section {
		case "[interface]":
		case "[peer]":
			p.file.Peers = append(p.file.Peers, Peer{})
		default:
			return fmt.Errorf("unknown section %s", line)
		}
		return nil
	}
	key, value, ok := strings.Cut(line, "=")
	if !ok {
		return errors.New("expected KEY = VALUE")
	}
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	err := fmt.Errorf("unknown key in %s", p.section)
	switch p.section {
	case "":
		err = errors.New("expected [Interface] first")
	case "[interface]":
		if set := interfaceKeys[strings.ToLower(key)]; set != nil {
			err = set(p.file, value)
		}
	case "[peer]":
		if set := peerKeys[strings.ToLower(key)]; set != nil {
			err = set(&p.file.Peers[len(p.file.Peers)-1], value)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

// ignored accepts keys of wg-quick that mean nothing here. Commands are never run.
func ignored[T any](*T, string) error { return nil }

var interfaceKeys = map[string]func(*File, string) error{
	"privatekey": func(f *File, v string) (err error) { f.Private, err = parseKey(v); return err },
	"address": func(f *File, v string) error {
		return each(v, func(s string) error {
			p, err := parsePrefix(s)
			f.Addrs = append(f.Addrs, p)
			return err
		})
	},
	"dns": func(f *File, v string) error {
		return each(v, func(s string) error {
			if a, err := netip.ParseAddr(s); err == nil { // others are search domains
				f.DNS = append(f.DNS, a)
			}
			return nil
		})
	},
	"mtu": func(f *File, v string) (err error) {
		if f.MTU, err = strconv.Atoi(v); err != nil || f.MTU < config.MinMTU || f.MTU > config.MaxMTU {
			err = fmt.Errorf("%q; expected a number from %d to %d", v, config.MinMTU, config.MaxMTU)
		}
		return err
	},
	"listenport": ignored[File], "table": ignored[File], "fwmark": ignored[File], "saveconfig": ignored[File],
	"preup": ignored[File], "postup": ignored[File], "predown": ignored[File], "postdown": ignored[File],
}

var peerKeys = map[string]func(*Peer, string) error{
	"publickey":    func(p *Peer, v string) (err error) { p.Public, err = parseKey(v); return err },
	"presharedkey": func(p *Peer, v string) (err error) { p.Shared, err = parseKey(v); return err },
	"allowedips": func(p *Peer, v string) error {
		return each(v, func(s string) error {
			a, err := parsePrefix(s)
			p.Allowed = append(p.Allowed, a.Masked())
			return err
		})
	},
	"endpoint": ignored[Peer], "persistentkeepalive": ignored[Peer],
}

func each(list string, f func(string) error) error {
	for _, s := range strings.Split(list, ",") {
		if err := f(strings.TrimSpace(s)); err != nil {
			return err
		}
	}
	return nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return p, fmt.Errorf("%q; expected ADDRESS/PREFIX", s)
	}
	return p, nil
}

// Gateway returns the address of the gateway in the tunnel, and the file's own
// address of the same family. The gateway has the first address of the network
// of one of the file's addresses. Both results are invalid if the file names no
// network.
func (f *File) Gateway() (gateway, own netip.Addr) {
	for _, p := range f.Addrs {
		gw := p.Masked().Addr().Next()
		if p.Bits() < p.Addr().BitLen()-1 && gw != p.Addr() {
			return gw, p.Addr()
		}
	}
	return netip.Addr{}, netip.Addr{}
}
