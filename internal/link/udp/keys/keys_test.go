// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var network = netip.MustParsePrefix("10.9.0.0/29")

// Each client has its own keys and addresses, and no file is overwritten.
func TestCreate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	for _, name := range []string{"phone", "laptop"} {
		if _, err := Create(dir, Client{Name: name, Paths: 2, Net: network}); err != nil {
			t.Fatal(err)
		}
	}
	gateway, err := Read(filepath.Join(dir, GatewayFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(gateway.Peers) != 4 || gateway.Open {
		t.Errorf("the gateway: %+v", gateway)
	}
	seen := map[string]bool{}
	for n, name := range []string{"phone-1", "phone-2", "laptop-1", "laptop-2"} {
		f, err := Read(filepath.Join(dir, name+".conf"))
		if err != nil {
			t.Fatal(err)
		}
		own, err := publicKey(f.Private)
		if err != nil || own != gateway.Peers[n].Public {
			t.Errorf("%s: the gateway does not know its key (%v)", name, err)
		}
		if gw, mine := f.Gateway(); gw != gateway.Addrs[0].Addr() || mine != f.Addrs[0].Addr() {
			t.Errorf("%s: the gateway is %v, and it is %v", name, gw, mine)
		}
		for k, a := range f.Addrs {
			if seen[a.Addr().String()] || gateway.Peers[n].Allowed[k].Addr() != a.Addr() || !gateway.Peers[n].Allowed[k].IsSingleIP() {
				t.Errorf("%s: address %v, allowed %v", name, a, gateway.Peers[n].Allowed)
			}
			seen[a.Addr().String()] = true
		}
	}
	if _, err := Create(dir, Client{Name: "phone", Paths: 1, Net: network}); err == nil || !strings.Contains(err.Error(), "already exists") {
		t.Errorf("a client that exists: %v", err)
	}
	if _, err := Create(dir, Client{Name: "third", Paths: 2, Net: network}); err == nil || !strings.Contains(err.Error(), "are in use") {
		t.Errorf("more clients than addresses: %v", err)
	}
}

func TestRead(t *testing.T) {
	const key = "YAnz5TF+lXXJte14tji3zlMNftdL3oS3lKAHbwY9kGE="
	read := func(text string) (*File, error) {
		path := filepath.Join(t.TempDir(), "f.conf")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return Read(path)
	}
	f, err := read("[Interface]\r\nprivatekey=" + key + "\nAddress = 10.0.0.2/24,fd00::2 # mine\nDNS=10.0.0.1, example.org\nMTU = 1300\nPostUp = rm -rf /\n" +
		"[Peer]\nPublicKey = " + key + "\nPresharedKey = " + key + "\nAllowedIPs = 0.0.0.0/0\nEndpoint = example.org:1\n")
	if err != nil {
		t.Fatal(err)
	}
	if f.Private.String() != key || len(f.Addrs) != 2 || f.Addrs[1].Bits() != 128 || len(f.DNS) != 1 || f.MTU != 1300 || len(f.Peers) != 1 || f.Peers[0].Shared.String() != key || !f.Open {
		t.Errorf("%+v", f)
	}
	for text, want := range map[string]string{
		"":                                 "no PrivateKey",
		"[Interface]\nPrivateKey = " + key: "no Address",
		"PrivateKey = " + key:              "line 1: PrivateKey: expected [Interface] first",
		"[Interface]\nPrivateKey = secret": "line 2: PrivateKey: expected a key of 32 bytes",
		"[Interface]\nPrivatKey = " + key:  "line 2: PrivatKey: unknown key",
		"[Interface]\nAddress = here":      "line 2: Address: \"here\"",
		"[Interface]\nMTU = 70000":         "line 2: MTU: \"70000\"; expected a number from",
		"[Interface]\nnonsense":            "line 2: expected KEY = VALUE",
		"[Other]":                          "line 1: unknown section [Other]",
		"[Interface]\nPrivateKey = " + key + "\nAddress = 10.0.0.2/24\n[Peer]\n": "a [Peer] without PublicKey",
		"\x00\xff": "line 1: expected KEY = VALUE",
	} {
		_, err := read(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
