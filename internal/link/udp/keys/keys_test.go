// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
		own, err := f.Private.Public()
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

const key = "YAnz5TF+lXXJte14tji3zlMNftdL3oS3lKAHbwY9kGE="

// complete is a file with everything that users write.
const complete = "\ufeff[interface]\r\nprivatekey=" + key + "\r\nAddress = 10.0.0.2/24,fd00::2 # mine\nADDRESS=10.0.1.2\nDNS=10.0.0.1, lab.example.org fd00::1\n" +
	"MTU = 1300\nListen Port = 51820\nPostUp = rm -rf / = x\nTable=off\nFwMark = 0x1\nSaveConfig = true\nPostUp = y\n\n# [Other]\n" +
	"[ Peer ]\nPublicKey = " + key + "\nPresharedKey = " + key + "\nAllowedIPs = 0.0.0.0/0\nAllowedIPs = ::/0, 10.1.2.3/8\nEndpoint = example.org:1\nPersistentKeepalive = 25\n" +
	"[Peer]\nPublicKey = " + key + "\nAllowedIPs =\nEndpoint = [fd00::9]:65535\nPersistentKeepalive = OFF\n[Peer]\nPublicKey = " + key

func TestRead(t *testing.T) {
	read := func(text string) (*File, error) {
		path := filepath.Join(t.TempDir(), "f.conf")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return Read(path)
	}
	f, err := read(complete)
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		fmt.Sprint(f.Private, f.Open, f.Port, f.MTU, len(f.Peers)):                     key + " true 51820 1300 3",
		fmt.Sprint(f.Addrs, f.DNS, f.Search):                                           "[10.0.0.2/24 fd00::2/128 10.0.1.2/32] [10.0.0.1 fd00::1] [lab.example.org]",
		fmt.Sprint(f.Ignored):                                                          "[PostUp Table FwMark SaveConfig]",
		fmt.Sprint(f.Peers[0].Shared, f.Peers[0].Allowed, f.Peers[0].Endpoint):         key + " [0.0.0.0/0 ::/0 10.0.0.0/8]example.org:1",
		fmt.Sprint(f.Peers[0].Keepalive, f.Peers[1].Keepalive):                         "25 0",
		fmt.Sprint(f.Peers[1].Allowed, f.Peers[1].Endpoint, f.Peers[2].Endpoint == ""): "[][fd00::9]:65535true",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	const inPeer = "[Interface]\nPrivateKey = " + key + "\n[Peer]\n"
	for text, want := range map[string]string{
		"":                                           "no PrivateKey",
		"[Interface]\nPrivateKey = " + key:           "no Address",
		"PrivateKey = " + key:                        "line 1: expected [Interface] first",
		"[Interface]\nPrivateKey = secret":           "line 2: PrivateKey: expected a key of 32 bytes",
		"[Interface]\nPrivatKey = " + key:            "line 2: PrivatKey: unknown key",
		"[Interface]\nPrivateKey =\n" + key:          "line 2: PrivateKey: expected a key of 32 bytes",
		"[Interface]\n" + key:                        "line 2: unknown key in [interface]",
		"[Interface]\nAddress = here":                "line 2: Address: \"here\"",
		"[Interface]\nAddress = 0" + key:             "line 2: Address: a key; expected ADDRESS/PREFIX",
		"[Interface]\nAddress = ::ffff:10.0.0.1/120": "line 2: Address: \"::ffff",
		"[Interface]\nDNS = 10.0.0.256":              "line 2: DNS: \"10.0.0.256\"; expected an address or a search domain",
		"[Interface]\nDNS = fe80::1%eth0":            "line 2: DNS: \"fe80::1%eth0\"; expected an address",
		"[Interface]\nDNS = a;b":                     "line 2: DNS: \"a;b\"; expected an address",
		"[Interface]\nMTU = 70000":                   "line 2: MTU: \"70000\"; expected a number from",
		"[Interface]\nListenPort = 65536":            "line 2: ListenPort: \"65536\"; expected a number from 0 to 65535",
		"[Interface]\nnonsense":                      "line 2: expected KEY = VALUE",
		"[Interface]\nJc = 4":                        "line 2: Jc: unknown key in [interface]",
		"[Other]":                                    "line 1: unknown section",
		inPeer + "Endpoint = fd00::1:51820":          "line 4: Endpoint: \"fd00::1:51820\"; expected HOST:PORT",
		inPeer + "Endpoint = example.org":            "line 4: Endpoint: \"example.org\"; expected HOST:PORT",
		inPeer + "Endpoint = :1":                     "line 4: Endpoint: \":1\"; expected HOST:PORT",
		inPeer + "Endpoint = a:0":                    "line 4: Endpoint: \"a:0\"; expected HOST:PORT",
		inPeer + "AllowedIPs = 10.0.0.0/33":          "line 4: AllowedIPs: \"10.0.0.0/33\"; expected ADDRESS/PREFIX",
		inPeer + "PersistentKeepalive = x":           "line 4: PersistentKeepalive: \"x\"; expected a number",
		inPeer + "MTU = 1300":                        "line 4: MTU: unknown key in [peer]",
		"[Interface]\nPrivateKey = " + key + "\nAddress = 10.0.0.2/24\n[Peer]\n": "a [Peer] without PublicKey",
		"\x00\xff": "line 1: expected KEY = VALUE",
	} {
		_, err := read(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), key[:len(key)-1]) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// FuzzParse checks that no error quotes a secret, and that the values of a file are safe in
// WireGuard's configuration protocol and in resolv.conf(5), whose lines end at a newline.
func FuzzParse(f *testing.F) {
	f.Add(complete)
	f.Add("[Interface]\nPrivateKey = " + key + "\n[Peer]\nEndpoint = [::1%lo]:1")
	f.Fuzz(func(t *testing.T, text string) {
		file, err := parse(text)
		if err != nil {
			if strings.Contains(text, key) && strings.Contains(err.Error(), key[:len(key)-1]) {
				t.Errorf("the error quotes a key: %v", err)
			}
			return
		}
		values := append(slices.Clone(file.Search), file.Ignored...)
		for _, p := range file.Peers {
			values = append(values, p.Endpoint)
		}
		if all := strings.Join(values, ""); strings.ContainsAny(all, "\n\r\x00 ") {
			t.Errorf("%q has white space", all)
		}
	})
}
