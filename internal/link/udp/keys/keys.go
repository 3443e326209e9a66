// SPDX-License-Identifier: Apache-2.0

// Package keys reads the key files of interfaces of the types udp and wg, and
// creates those of udp. A key file is a WireGuard configuration in the format of
// wg-quick(8), so each end of a tunnel can also be WireGuard itself.
package keys

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/lklrun/lklrun/internal/base/errno"
	"github.com/lklrun/lklrun/internal/base/text"
	"github.com/lklrun/lklrun/internal/link"
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
	Facts
	Private Key
	Port    uint16 // on which the peers may call; 0: any
	Peers   []Peer
	Ignored []string // keys of wg-quick(8) that lklrun ignores
}

// Facts are the content of a key file that is no secret.
type Facts struct {
	Path   string // absolute
	Open   bool   // users other than the owner may read the file
	Addrs  []netip.Prefix
	DNS    []netip.Addr
	Search []string // domains
	MTU    int      // 0: not given
}

// Peer is the other end of a tunnel.
type Peer struct {
	Public    Key
	Shared    Key            // a key that both ends have in addition; zero: none
	Allowed   []netip.Prefix // the addresses behind the peer
	Endpoint  string         // HOST:PORT; "": the peer calls
	Keepalive int            // in seconds; 0: off
}

// Read reads a key file. The error names the file and the line.
func Read(path string) (*File, error) {
	content, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s does not exist", path)
	case err != nil:
		return nil, fmt.Errorf("%s cannot be read (%w)", path, errno.Errno(err))
	}
	f, err := parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if f.Path, err = filepath.Abs(path); err != nil {
		return nil, err
	}
	if st, err := os.Stat(path); err == nil {
		f.Open = st.Mode().Perm()&0o077 != 0
	}
	return f, nil
}

// Limit limits the MTU to what fits into the packets of a path to the other end.
func (f *Facts) Limit(room int, i *config.Interface) error {
	if f.MTU == 0 {
		f.MTU = DefaultMTU
	}
	f.MTU = min(f.MTU, room)
	if i.MTU > room {
		return fmt.Errorf("mtu: the path to the other end leaves %d for the tunnel; lower mtu", room)
	}
	return nil
}

// Plan completes the plan of an interface.
func (f *Facts) Plan(r *link.Request) {
	l := r.Link
	if l.MTU == 0 {
		l.MTU = DefaultMTU
		if f.MTU != 0 {
			l.MTU = max(f.MTU, config.MinMTU)
		}
	}
	l.RawIP = true
	for _, a := range f.Addrs {
		if a.Addr().Is6() && l.MTU < config.MinMTU6 {
			r.Note("%s has no IPv6: the MTU %d is too small for it", l.Name, l.MTU)
			continue
		}
		l.Addrs = append(l.Addrs, a)
	}
	if len(l.DNS) == 0 {
		l.DNS = f.DNS
	}
	l.Search = f.Search
	if f.Open {
		r.Note("other users can read the keys in %s; run `chmod 600 %s`", f.Path, text.Quote([]string{f.Path}))
	}
}

// DefaultMTU is WireGuard's own default: a packet with all headers fits into
// 1500 bytes.
const DefaultMTU = 1420

// parser reads a key file line by line.
type parser struct {
	file    *File
	section string
}

func parse(content string) (*File, error) {
	p := parser{file: &File{}}
	for n, line := range strings.Split(strings.TrimPrefix(content, "\ufeff"), "\n") {
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
		p.section = strings.ToLower(withoutSpace(line))
		switch p.section {
		case "[interface]":
		case "[peer]":
			p.file.Peers = append(p.file.Peers, Peer{})
		default:
			return errors.New("unknown section; expected [Interface] or [Peer]")
		}
		return nil
	}
	name, value, ok := strings.Cut(line, "=")
	if !ok {
		return errors.New("expected KEY = VALUE")
	}
	name, value = withoutSpace(name), strings.TrimSpace(value)
	var set func(string) error
	switch p.section {
	case "":
		return errors.New("expected [Interface] first")
	case "[interface]":
		if of := interfaceKeys[strings.ToLower(name)]; of != nil {
			set = func(v string) error { return of(p.file, v) }
		} else if slices.Contains(ignored, strings.ToLower(name)) {
			if !slices.Contains(p.file.Ignored, name) {
				p.file.Ignored = append(p.file.Ignored, name)
			}
			return nil
		}
	case "[peer]":
		if of := peerKeys[strings.ToLower(name)]; of != nil {
			set = func(v string) error { return of(&p.file.Peers[len(p.file.Peers)-1], v) }
		}
	}
	if set == nil {
		return fmt.Errorf("%sunknown key in %s", ifWord(name), p.section)
	}
	if err := set(value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func withoutSpace(s string) string { return strings.Join(strings.Fields(s), "") }

// ifWord returns the prefix of a message about a key's name. The second half of
// a line that an editor has wrapped may be a secret, which looks like a name.
func ifWord(name string) string {
	const longest = 24
	if len(name) > longest || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return ""
	}
	return name + ": "
}

// quoted returns a value for a message, unless it may contain a key.
func quoted(value string) string {
	const almostKey = 40
	for _, word := range strings.FieldsFunc(value, func(r rune) bool { return r != '+' && r != '/' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if len(word) >= almostKey {
			return "a key"
		}
	}
	return strconv.Quote(value)
}

// ignored are the keys of wg-quick that mean nothing here. Commands are never
// run.
var ignored = []string{"table", "fwmark", "saveconfig", "preup", "postup", "predown", "postdown"}

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
			a, err := netip.ParseAddr(s)
			switch {
			case err == nil && a.Zone() == "":
				f.DNS = append(f.DNS, a)
			case strings.Trim(s, "0123456789.") == "" || strings.ContainsFunc(s, func(r rune) bool {
				return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-", r)
			}):
				return fmt.Errorf("%s; expected an address or a search domain", quoted(s))
			default:
				f.Search = append(f.Search, s)
			}
			return nil
		})
	},
	"mtu": func(f *File, v string) (err error) {
		f.MTU, err = number(v, config.MinMTU, config.MaxMTU)
		return err
	},
	"listenport": func(f *File, v string) error {
		n, err := number(v, 0, 65535)
		f.Port = uint16(n)
		return err
	},
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
	"endpoint": func(p *Peer, v string) error {
		host, port, err := net.SplitHostPort(v)
		if err == nil {
			_, err = number(port, 1, 65535)
		}
		if err != nil || host == "" {
			return fmt.Errorf("%s; expected HOST:PORT, and an IPv6 address in brackets", quoted(v))
		}
		p.Endpoint = v
		return nil
	},
	"persistentkeepalive": func(p *Peer, v string) (err error) {
		if strings.EqualFold(v, "off") {
			v = "0"
		}
		p.Keepalive, err = number(v, 0, 65535)
		return err
	},
}

func number(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s; expected a number from %d to %d", quoted(v), least, most)
	}
	return n, nil
}

func each(list string, f func(string) error) error {
	for _, s := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

func parsePrefix(s string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4In6() {
		return p, fmt.Errorf("%s; expected ADDRESS/PREFIX", quoted(s))
	}
	return p, nil
}

// Gateway returns the address of the gateway in the tunnel, and the file's own
// address of the same family. The gateway has the first address of the network
// of one of the file's addresses. Both results are invalid if the file names no
// network.
func (f *Facts) Gateway() (gateway, own netip.Addr) {
	for _, p := range f.Addrs {
		gw := p.Masked().Addr().Next()
		if p.Bits() < p.Addr().BitLen()-1 && gw != p.Addr() {
			return gw, p.Addr()
		}
	}
	return netip.Addr{}, netip.Addr{}
}
