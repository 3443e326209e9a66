// SPDX-License-Identifier: Apache-2.0

package stacknet_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/internal/stack/stacknet"
	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/lklhost"
)

const members = 2048

// One message changes all of 2,048 interfaces and no other, and an address is added to
// and removed from each of them.
func TestGroup(t *testing.T) {
	c := lklhost.Start(t, kit.NewNetns(t, "stack"), lklhost.Library(t), "true").Conn
	if _, err := c.Boot(limit(t), 256<<20, ""); err != nil { // as lklrun does
		t.Fatal(err)
	}
	if err := stacknet.AddDummies(limit(t), c, "d%d", members, 7); err != nil {
		t.Fatal(err)
	}
	if err := stacknet.AddDummies(limit(t), c, "other%d", 1, 8); err != nil {
		t.Fatal(err)
	}
	seven := stacknet.Target{Group: 7}
	up, mac := true, net.HardwareAddr{2, 0, 0, 0, 7, 7}
	for _, ch := range []stacknet.Change{{MTU: 1400}, {MAC: mac}, {Up: &up}} {
		if n, err := stacknet.SetLink(limit(t), c, seven, ch); err != nil || n != members {
			t.Fatalf("%+v: %d, %v", ch, n, err)
		}
	}
	links, err := stacknet.Links(limit(t), c)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		as := l.Up() && l.MTU == 1400 && slices.Equal(l.MAC, mac)
		if strings.HasPrefix(l.Name, "d") != as {
			t.Errorf("%+v", l)
		}
	}
	addr := netip.MustParsePrefix("10.0.0.1/24")
	if n, err := stacknet.SetAddress(limit(t), c, seven, addr, false); err != nil || n != members {
		t.Fatalf("adding %v: %d, %v", addr, n, err)
	}
	count := func() (n int) {
		t.Helper()
		all, err := stacknet.Addresses(limit(t), c)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Prefix == addr {
				n++
			}
		}
		return n
	}
	if n := count(); n != members {
		t.Errorf("%d have %v", n, addr)
	}

	// A second addition fails for all interfaces, and the error names the first one.
	// An interface that has lost the address gets it back.
	one := stacknet.Target{Name: fmt.Sprintf("d%d", members/2)}
	if _, err := stacknet.SetAddress(limit(t), c, one, addr, true); err != nil {
		t.Fatal(err)
	}
	n, err := stacknet.SetAddress(limit(t), c, seven, addr, false)
	if want := "2047 of 2048 interfaces failed; the first error: d0: "; n != 1 || !errors.Is(err, syscall.EEXIST) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("again: %d, %v; want %s...", n, err, want)
	}
	if n, err := stacknet.SetAddress(limit(t), c, seven, addr, true); err != nil || n != members || count() != 0 {
		t.Errorf("deleting %v: %d, %v; %d are left", addr, n, err, count())
	}

	// A change of the group's number requires one message per interface.
	nine := 9
	if n, err := stacknet.SetLink(limit(t), c, seven, stacknet.Change{Group: &nine, MTU: 1300}); err != nil || n != members {
		t.Fatalf("to group 9: %d, %v", n, err)
	}
	if _, err := stacknet.SetLink(limit(t), c, seven, stacknet.Change{MTU: 1200}); !errors.Is(err, stacknet.ErrNoTarget) {
		t.Errorf("an empty group: %v", err)
	}
	if n, err := stacknet.SetLink(limit(t), c, stacknet.Target{Group: 9}, stacknet.Change{MAC: net.HardwareAddr{1, 0, 0, 0, 0, 0}}); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a link address that cannot be, for %d: %v", n, err)
	}
}
