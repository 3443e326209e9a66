// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	adb "github.com/zach-klippenstein/goadb"
	"github.com/zach-klippenstein/goadb/wire"
	"golang.org/x/sys/unix"
)

// adbLimit is the timeout for answers of the adb server, and for quick answers of a
// device. If a device disconnects silently, the server notices it only after
// minutes.
const adbLimit = 15 * time.Second

// adbSocket is a connection to the adb server. It replaces the connection of goadb,
// which limits messages to 255 bytes, as very old servers do. Shell commands and
// device lists can be longer.
type adbSocket struct {
	net.Conn
	wire.Scanner
}

// Close closes the connection. Further calls do nothing.
func (s *adbSocket) Close() error {
	_ = s.Conn.Close() // fails if it was closed before
	return nil
}

// SendMessage sends a request: its length in four hexadecimal digits, then its
// text.
func (s *adbSocket) SendMessage(msg []byte) error {
	if len(msg) > 0xffff {
		return fmt.Errorf("a request of %d bytes, more than the limit of 65535", len(msg))
	}
	_, err := fmt.Fprintf(s.Conn, "%04x%s", len(msg), msg)
	return err
}

// ReadMessage reads an answer, which has the same form as a request.
func (s *adbSocket) ReadMessage() ([]byte, error) {
	var digits [4]byte
	if _, err := io.ReadFull(s.Conn, digits[:]); err != nil {
		return nil, err
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		return nil, fmt.Errorf("reading the length of an answer: %w", err)
	}
	msg := make([]byte, n)
	_, err = io.ReadFull(s.Conn, msg)
	return msg, err
}

// adbRefusal is the reason for which the server or a device rejects a request.
type adbRefusal string

func (r adbRefusal) Error() string { return string(r) }

// status reads OKAY, or FAIL and its reason, which message reads. goadb's ReadStatus would
// allocate as much memory as the other end demands, and panic on a negative length.
func (s *adbSocket) status(message func() ([]byte, error)) error {
	var word [4]byte
	if _, err := io.ReadFull(s.Conn, word[:]); err != nil {
		return err
	}
	switch string(word[:]) {
	case "OKAY":
		return nil
	case "FAIL":
		reason, err := message()
		if err != nil {
			return err
		}
		return adbRefusal(reason)
	}
	return fmt.Errorf("the answer %q is neither OKAY nor FAIL", word[:])
}

// NewSyncSender returns a sender for the sync service, which Push uses.
func (s *adbSocket) NewSyncSender() wire.SyncSender { return wire.NewSyncSender(s.Conn) }

// adbDialer makes goadb use adbSockets for its connections.
type adbDialer struct{}

// Dial connects to the server.
func (adbDialer) Dial(address string) (*wire.Conn, error) {
	c, err := net.DialTimeout("tcp", address, adbLimit)
	if err != nil {
		return nil, err
	}
	s := &adbSocket{Conn: c, Scanner: wire.NewScanner(c)}
	return wire.NewConn(s, s), nil
}

// dialADB connects to the adb server that adb(1) would use, and starts the
// server if none runs. The connection ends with the context.
func dialADB(ctx context.Context, who string) (_ *adbSocket, stop func() bool, err error) {
	port := 0
	if text := os.Getenv("ANDROID_ADB_SERVER_PORT"); text != "" {
		if port, err = strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
			return nil, nil, userError(who, "ANDROID_ADB_SERVER_PORT=%s is not a port", text)
		}
	}
	if _, err := exec.LookPath(adb.AdbExecutableName); err != nil {
		return nil, nil, userError(who, "the program adb is not installed on this machine; install it (Debian: apt install adb)")
	}
	client, err := adb.NewWithConfig(adb.ServerConfig{Port: port, Dialer: adbDialer{}})
	if err != nil {
		return nil, nil, userError(who, "%s", adbSaid(err))
	}
	conn, err := client.Dial()
	if err != nil {
		return nil, nil, userError(who, "the adb server did not start: %s; try `adb start-server`", adbSaid(err))
	}
	s := conn.Sender.(*adbSocket) // adbDialer created it
	return s, context.AfterFunc(ctx, func() { _ = s.Close() }), nil
}

// ask sends one request to the server and waits for OKAY. The answer follows OKAY.
func (s *adbSocket) ask(request string) error {
	_ = s.SetDeadline(time.Now().Add(adbLimit)) // if the connection is closed, the next call reports it
	defer func() { _ = s.SetDeadline(time.Time{}) }()
	if err := s.SendMessage([]byte(request)); err != nil {
		return err
	}
	return s.status(s.ReadMessage)
}

// adbSaid returns the server's answer, or the error's own text, in one line.
func adbSaid(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "ServerNotAvailable: ")), " ")
}

// adbEntry is a device in the server's list.
type adbEntry struct{ serial, state string }

// adbEntries requests the server's list.
func adbEntries(ctx context.Context, who string) ([]adbEntry, error) {
	s, stop, err := dialADB(ctx, who)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer stop()
	text, err := "", s.ask("host:devices")
	if err == nil {
		var msg []byte
		msg, err = s.ReadMessage()
		text = string(msg)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, broken(who, "adb server: %s", adbSaid(err))
	}
	return parseEntries(text), nil
}

// parseEntries parses lines of a serial number, a tab and a state. The state
// may contain blanks ("no permissions (…)").
func parseEntries(text string) []adbEntry {
	var all []adbEntry
	for line := range strings.Lines(text) {
		if serial, state, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			all = append(all, adbEntry{serial, strings.TrimSpace(state)})
		}
	}
	return all
}

// listADB lists all devices of the server.
func listADB(ctx context.Context) ([]Target, error) {
	entries, err := adbEntries(ctx, KindAll)
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 {
		return nil, userError(KindAll, "%s", noDevice)
	}
	var all []Target
	for _, e := range entries {
		all = append(all, Target{Kind: KindADB, Name: e.serial})
	}
	return all, nil
}

const noDevice = "no device; connect one and allow USB debugging on it (`adb devices` lists the devices)"

// choose finds the device that t means. If t has no serial number, the device is
// that of ANDROID_SERIAL, as in adb(1), or the only device.
func choose(t Target, entries []adbEntry) (adbEntry, error) {
	serial := cmp.Or(t.Name, os.Getenv("ANDROID_SERIAL"))
	i := slices.IndexFunc(entries, func(e adbEntry) bool { return e.serial == serial })
	switch {
	case i >= 0:
		return entries[i], nil
	case serial != "":
		return adbEntry{}, userError(t.String(), "there is no device %s; `adb devices` lists the devices", serial)
	case len(entries) == 0:
		return adbEntry{}, userError(t.String(), "%s", noDevice)
	case len(entries) > 1:
		var names []string
		for _, e := range entries {
			names = append(names, KindADB+":"+e.serial)
		}
		return adbEntry{}, userError(t.String(), "there are %d devices; choose one of %s, or all", len(entries), strings.Join(names, ", "))
	}
	return entries[0], nil
}

// usable returns an error if a device's state does not allow its use. The
// states are adb's (`adb help` and ConnectionState in its adb.h).
func usable(t Target, e adbEntry) error {
	switch e.state {
	case "device":
		return nil
	case "offline":
		return userError(t.String(), "the device is offline; unlock it, reconnect it, or try `adb reconnect offline`")
	case "unauthorized", "authorizing":
		return userError(t.String(), "the device has not authorized this computer; accept its key in the dialog on the device's screen")
	}
	if strings.HasPrefix(e.state, "no permissions") {
		return userError(t.String(), "the adb server has no permission to open the device (%s)", e.state)
	}
	return userError(t.String(), "the device is in the state %q; start Android on it", e.state)
}

// adbDevice is a device of the adb server.
type adbDevice struct {
	target Target
	serial string
}

func openADB(ctx context.Context, t Target) (Device, error) {
	entries, err := adbEntries(ctx, t.String())
	if err != nil {
		return nil, err
	}
	e, err := choose(t, entries)
	if err != nil {
		return nil, err
	}
	if err := usable(t, e); err != nil {
		return nil, err
	}
	d := &adbDevice{target: t, serial: e.serial}
	features, err := d.features(ctx)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(features, "shell_v2") {
		return nil, userError(t.String(), "the device's adbd does not report an exit status (no shell_v2); Android 7 or later is required")
	}
	return d, nil
}

// Name returns the target's name.
func (d *adbDevice) Name() string { return d.target.String() }

// Close does nothing: there is nothing to release.
func (d *adbDevice) Close() error { return nil }

// features returns the features that both the device's adbd and the server
// support.
func (d *adbDevice) features(ctx context.Context) ([]string, error) {
	s, stop, err := dialADB(ctx, d.Name())
	if err != nil {
		return nil, err
	}
	defer s.Close()
	defer stop()
	var msg []byte
	if err = s.ask("host-serial:" + d.serial + ":features"); err == nil {
		msg, err = s.ReadMessage()
	}
	if err != nil {
		return nil, d.failed(ctx, err)
	}
	return strings.Split(string(msg), ","), nil
}

// service opens a stream to a service of the device.
func (d *adbDevice) service(ctx context.Context, name string) (_ *adbSocket, stop func() bool, err error) {
	s, stop, err := dialADB(ctx, d.Name())
	if err != nil {
		return nil, nil, err
	}
	for _, request := range []string{"host:transport:" + d.serial, name} {
		if err := s.ask(request); err != nil {
			stop()
			s.Close()
			return nil, nil, d.failed(ctx, err)
		}
	}
	return s, stop, nil
}

// failed returns the error for a failed connection to the device.
func (d *adbDevice) failed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	said := adbSaid(err)
	switch {
	case strings.Contains(said, "unauthorized"):
		return usable(d.target, adbEntry{d.serial, "unauthorized"})
	case strings.Contains(said, "offline"):
		return usable(d.target, adbEntry{d.serial, "offline"})
	case strings.Contains(said, "not found"):
		return broken(d.Name(), "the connection to the device was lost; was it unplugged?")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, os.ErrDeadlineExceeded),
		strings.HasPrefix(said, "NetworkError"), strings.HasPrefix(said, "ConnectionResetError"):
		return broken(d.Name(), "the device does not answer; is it still connected?")
	}
	return broken(d.Name(), "connection to the device: %s", said)
}

// Attached returns the usable devices of a running adb server. It does not
// start a server; without one, it returns none.
func Attached(ctx context.Context) []Target {
	const adbPort = "5037" // adb's default, DEFAULT_ADB_PORT in its adb.h
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", cmp.Or(os.Getenv("ANDROID_ADB_SERVER_PORT"), adbPort)))
	if err != nil {
		return nil
	}
	c.Close()
	entries, err := adbEntries(ctx, KindAll)
	if err != nil {
		return nil
	}
	var all []Target
	for _, e := range entries {
		if e.state == "device" {
			all = append(all, Target{Kind: KindADB, Name: e.serial})
		}
	}
	return all
}
