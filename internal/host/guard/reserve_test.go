// SPDX-License-Identifier: Apache-2.0

package guard

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

func none() ([]string, error) { return nil, nil }

func reservedText(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(reservedFile)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

func TestPortSet(t *testing.T) {
	for _, list := range []string{"", "1", "80,443", "1-65535", "1000-1999,2001,3000-3001"} {
		s, err := parsePorts(list + "\n")
		if err != nil || s.String() != list {
			t.Errorf("%q: %q, %v", list, s, err)
		}
	}
	for _, list := range []string{"x", "1,", "5-4", "65536", "1-", "-1", "1 2"} {
		if s, err := parsePorts(list); err == nil {
			t.Errorf("%q: %q", list, s)
		}
	}
}

// Runs that start at the same time get ranges that overlap neither each other,
// nor the administrator's reservations, nor the host's sockets. When all have
// ended, the file has its old content.
func TestReserve(t *testing.T) {
	kit.Need(t, "ip")
	n := kit.NewNetns(t, "reserve")
	const admin = "2000,61500-61600,62000"
	n.Run(t, "sysctl", "-qw", "net.ipv4.ip_local_reserved_ports="+admin)
	n.Do(t, func() error {
		// A TCP socket that is bound, but neither listens nor connects,
		// is in no table of /proc/net.
		bound, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(bound)
		if err := unix.Bind(bound, &unix.SockaddrInet6{Port: 64000}); err != nil {
			return err
		}
		udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(udp)
		if err := unix.Bind(udp, &unix.SockaddrInet4{Port: 65000}); err != nil {
			return err
		}
		before := reservedText(t)

		var mu sync.Mutex
		owner := map[int]string{2000: "admin", 62000: "admin", 64000: "bound", 65000: "udp"}
		for p := 61500; p <= 61600; p++ {
			owner[p] = "admin"
		}
		var written []string
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				n.Do(t, func() error {
					r, err := Reserve(t.Context(), Wish{Size: 500 + i}, none, func(ports string) error {
						mu.Lock()
						defer mu.Unlock()
						written = append(written, ports)
						return nil
					})
					if err != nil {
						return err
					}
					mu.Lock()
					defer mu.Unlock()
					if got := int(r.Last) - int(r.First) + 1; got != 500+i {
						t.Errorf("%d ports instead of %d", got, 500+i)
					}
					for p := int(r.First); p <= int(r.Last); p++ {
						if owner[p] != "" {
							t.Errorf("run %d got port %d, which is %s's", i, p, owner[p])
						}
						owner[p] = fmt.Sprint("run ", i)
					}
					return nil
				})
			})
		}
		wg.Wait()
		s, err := parsePorts(reservedText(t))
		if err != nil {
			return err
		}
		for p, who := range owner {
			if who != "bound" && who != "udp" && !s.has(p) {
				t.Errorf("port %d of %s is not reserved", p, who)
			}
		}
		for _, w := range written {
			for range 2 { // the second call changes nothing
				if err := Release(t.Context(), w); err != nil {
					t.Error(err)
				}
			}
		}
		if after := reservedText(t); after != before {
			t.Errorf("%q before, %q after", before, after)
		}
		return nil
	})
}

// A list longer than a page, the maximum of one write to the kernel, also
// works.
func TestReserveLong(t *testing.T) {
	kit.Need(t, "ip")
	n := kit.NewNetns(t, "reserve")
	n.Do(t, func() error {
		s := &portSet{}
		for p := 10001; p < 20000; p += 2 {
			s.add(p)
		}
		if err := writeReserved(s); err != nil {
			return err
		}
		var written string
		r, err := Reserve(t.Context(), Wish{Size: 1024}, none, func(ports string) error { written = ports; return nil })
		if err != nil {
			return err
		}
		got, err := readReserved()
		if err != nil {
			return err
		}
		want := *s
		want.addAll(r.set())
		if *got != want {
			t.Errorf("reserved are %v; wanted %v", got, &want)
		}
		if err := Release(t.Context(), written); err != nil {
			return err
		}
		if got, err = readReserved(); err != nil || *got != *s {
			t.Errorf("afterwards reserved are %v, %v", got, err)
		}
		return nil
	})
}

func TestReserveRefused(t *testing.T) {
	kit.Need(t, "ip")
	n := kit.NewNetns(t, "reserve")
	n.Run(t, "ip", "addr", "add", "192.0.2.1/32", "dev", "lo")
	n.Run(t, "ip", "addr", "add", "192.0.2.9/32", "dev", "lo")
	n.Listen(t, "127.0.0.1:8080")
	n.Listen(t, "192.0.2.1:8081")
	n.Listen(t, ":8082")
	shared := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	noted := func(string) error { t.Error("something was written down"); return nil }
	n.Do(t, func() error {
		before := reservedText(t)
		for _, c := range []struct {
			w    Wish
			want string
		}{
			{Wish{Size: 100, Listen: []uint16{8081}, Addrs: shared}, "--listen 8081: a tcp socket of the host at 192.0.2.1:8081 uses this port; stop that program or choose another port"},
			{Wish{Size: 100, Listen: []uint16{8082}, Addrs: shared}, "--listen 8082: a tcp socket of the host at [::]:8082 uses this port; stop that program or choose another port"},
			{Wish{Size: 100, Listen: []uint16{7000}, Addrs: shared}, "--listen 7000: another run uses this port; choose another port"},
			{Wish{First: 8000, Last: 9000}, "--port-range 8000-9000: port 8080 is in use on the host; choose another range"},
			{Wish{First: 6000, Last: 7000}, "--port-range 6000-7000: another run uses port 7000; choose another range"},
			{Wish{Size: 60000}, "the host has no 60000 consecutive free ports; pass a smaller number with --port-range"},
		} {
			_, err := Reserve(t.Context(), c.w, func() ([]string, error) { return []string{"7000"}, nil }, noted)
			if err == nil || err.Error() != c.want {
				t.Errorf("%+v: %v", c.w, err)
			}
		}
		if after := reservedText(t); after != before {
			t.Errorf("%q before, %q after", before, after)
		}
		w := Wish{Size: 100, Listen: []uint16{8080}, Addrs: shared} // the socket is bound only to a loopback address
		if _, err := Reserve(t.Context(), w, none, func(string) error { return nil }); err != nil {
			t.Error(err)
		}
		sockets, err := Sockets(t.Context(), []uint16{8080, 8081})
		if err != nil {
			return err
		}
		if err := CheckListen([]uint16{8080, 8081}, shared, sockets); err == nil || !strings.HasPrefix(err.Error(), "--listen 8081: ") {
			t.Errorf("%v", err)
		}
		return nil
	})
}
