// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/lklrun/lklrun/internal/remote"
	"github.com/lklrun/lklrun/internal/remote/ondevice"
	"github.com/lklrun/lklrun/pkg/config"
)

// lendTries bounds the wait for the helper that opens the interfaces, in steps of 100 ms.
const lendTries = 50

// firstAppUID is the first user ID of apps (system/core, android_filesystem_config.h).
const firstAppUID = 10000

// splitLent returns the interfaces that an app may not open itself, and the flags with
// descriptors in their place.
func splitLent(flags []string) (lent, rest []string, err error) {
	for n := 0; n < len(flags); n++ {
		spec, ok := strings.CutPrefix(flags[n], "--if=")
		if flags[n] == "--if" && n+1 < len(flags) {
			n++
			spec, ok = flags[n], true
		}
		if !ok {
			rest = append(rest, flags[n])
			continue
		}
		i, err := config.ParseInterface(spec)
		if err == nil && slices.Contains(ondevice.LendTypes, i.Type) {
			lent = append(lent, spec)
			i.Type, i.Device, i.FD = "fd", "", ondevice.FirstLent+len(lent)-1
			spec = i.String()
			_, err = config.ParseInterface(spec)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("--if %w", err)
		}
		rest = append(rest, "--if", spec)
	}
	return lent, rest, nil
}

// serveFDs starts the helper that opens the interfaces as root. It serves every start of the
// app, until Unset ends it.
func (a *App) serveFDs(ctx context.Context, lent []string) error {
	if len(lent) == 0 {
		return nil
	}
	if a.uid < firstAppUID {
		return a.refuse("the device does not tell the user ID of %s, which the interfaces are for", a.name)
	}
	socket, log := remote.Quote(a.socket()), remote.Quote(a.socket()+".log")
	words := []string{remote.Quote(a.lklrun()), "device", "lend", socket, fmt.Sprint(a.uid)}
	for _, spec := range lent {
		words = append(words, remote.Quote(spec))
	}
	line := fmt.Sprintf(`%[1]s </dev/null >%[2]s 2>&1 & n=0
while [ ! -S %[3]s ] && kill -0 $! 2>/dev/null && [ $n -lt %[4]d ]; do n=$((n+1)); sleep 0.1; done
[ -S %[3]s ]; n=$?; cat %[2]s; rm -f %[2]s; exit $n`, strings.Join(words, " "), log, socket, lendTries)
	out, status, err := a.shell(ctx, line)
	if err == nil && status != 0 {
		err = a.refuse("opening the app's interfaces: %s", strings.TrimPrefix(lastLine(out), "lklrun: "))
	}
	return err
}
