// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/lklrun/lklrun/internal/base/errno"
)

// GatewayFile is the name of the gateway's key file.
const GatewayFile = "gateway.conf"

// Client describes the key files of a new client.
type Client struct {
	Name  string
	Paths int          // one key file for each
	Net   netip.Prefix // the tunnel's IPv4 network, for a new gateway
}

// Create adds a client to the gateway whose key file is in the directory dir. If
// the gateway has no keys yet, Create makes them. It returns the new files, and
// overwrites none.
func Create(dir string, c Client) (created []string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, errno.Errno(err))
	}
	path := filepath.Join(dir, GatewayFile)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		if err := newGateway(path, c.Net); err != nil {
			return nil, err
		}
		created = append(created, path)
	}
	gateway, err := Read(path)
	if err != nil {
		return created, err
	}
	public, err := gateway.Private.Public()
	if err != nil {
		return created, err
	}
	for n := range c.Paths {
		file := filepath.Join(dir, fmt.Sprintf("%s-%d.conf", c.Name, n+1))
		addrs, err := gateway.freeAddrs()
		if err != nil {
			return created, err
		}
		private, own, err := newKey()
		if err != nil {
			return created, err
		}
		text := fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = %s\n\n[Peer]\nPublicKey = %s\nAllowedIPs = 0.0.0.0/0, ::/0\n",
			private, join(addrs), public)
		if err := write(file, text, os.O_EXCL); err != nil {
			return created, err
		}
		created = append(created, file)
		peer := Peer{Public: own}
		for _, a := range addrs {
			peer.Allowed = append(peer.Allowed, netip.PrefixFrom(a.Addr(), a.Addr().BitLen()))
		}
		text = fmt.Sprintf("\n# %s\n[Peer]\nPublicKey = %s\nAllowedIPs = %s\n", filepath.Base(file), own, join(peer.Allowed))
		if err := write(path, text, os.O_APPEND); err != nil {
			return created, err
		}
		gateway.Peers = append(gateway.Peers, peer)
	}
	return created, nil
}

// newGateway creates the gateway's key file, without clients. The IPv6 network
// is a random one (RFC 4193).
func newGateway(path string, net4 netip.Prefix) error {
	private, _, err := newKey()
	if err != nil {
		return err
	}
	six := [16]byte{0xfd}
	if _, err := rand.Read(six[1:6]); err != nil {
		return err
	}
	addrs := []netip.Prefix{
		netip.PrefixFrom(net4.Masked().Addr().Next(), net4.Bits()),
		netip.PrefixFrom(netip.AddrFrom16(six).Next(), 64),
	}
	return write(path, fmt.Sprintf("[Interface]\nPrivateKey = %s\nAddress = %s\n", private, join(addrs)), os.O_EXCL)
}

// freeAddrs returns the next free address of each network of the gateway.
func (f *File) freeAddrs() ([]netip.Prefix, error) {
	taken := map[netip.Addr]bool{}
	for _, a := range f.Addrs {
		taken[a.Addr()] = true
	}
	for _, p := range f.Peers {
		for _, a := range p.Allowed {
			taken[a.Addr()] = true
		}
	}
	var free []netip.Prefix
	for _, net := range f.Addrs {
		a := net.Masked().Addr().Next()
		for taken[a] {
			a = a.Next()
		}
		if !net.Contains(a) || !net.Contains(a.Next()) { // the last IPv4 address is for broadcasts
			return nil, fmt.Errorf("%s: all addresses of %s are in use", f.Path, net.Masked())
		}
		free = append(free, netip.PrefixFrom(a, net.Bits()))
	}
	return free, nil
}

func newKey() (private, public Key, err error) {
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return private, public, err
	}
	return Key(k.Bytes()), Key(k.PublicKey().Bytes()), nil
}

// Public returns the public key of a private one.
func (k Key) Public() (Key, error) {
	private, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return Key{}, err
	}
	return Key(private.PublicKey().Bytes()), nil
}

func write(path, text string, how int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s already exists; choose another --client", path)
	case err != nil:
		return fmt.Errorf("%s: %w", path, errno.Errno(err))
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, errno.Errno(err))
	}
	return nil
}

func join(all []netip.Prefix) string {
	var words []string
	for _, p := range all {
		words = append(words, p.String())
	}
	return strings.Join(words, ", ")
}
