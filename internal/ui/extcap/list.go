// SPDX-License-Identifier: Apache-2.0

package extcap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lklrun/lklrun/internal/diag/packets"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/pkg/capture"
)

// askLimit is the timeout for an instance to report its interfaces. It is short because
// Wireshark waits for the list when it starts. If an instance does not answer, the list
// contains it without its interfaces.
const askLimit = 2 * time.Second

// List lists the entries for captures in places: one for all running instances, one for
// each instance, and one for each interface.
func List(ctx context.Context, places ...instance.Place) ([]Interface, error) {
	var all []Interface
	for _, p := range places {
		some, err := of(ctx, p)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// Elsewhere returns the device that an interface's value names, in the syntax of
// --device. It returns "" for this machine.
func Elsewhere(value string) string {
	_, device, _ := strings.Cut(value, deviceMark)
	return device
}

// deviceMark precedes the device in a value.
const deviceMark = "@"

// of lists the interfaces of one place.
func of(ctx context.Context, place instance.Place) ([]Interface, error) {
	runs, err := place.List()
	if err != nil {
		return nil, err
	}
	runs = slices.DeleteFunc(runs, func(i instance.Info) bool { return !i.Running })
	have := make([][]capture.Interface, len(runs))
	var wg sync.WaitGroup
	for n := range runs {
		wg.Go(func() { have[n] = devices(ctx, &runs[n]) })
	}
	wg.Wait()
	var all []Interface
	if len(runs) > 1 {
		every := Interface{Value: Prefix, Display: "lklrun: all instances", LinkType: capture.LinkTypeEthernet}
		for _, r := range runs {
			every.Instances = append(every.Instances, r.Name)
		}
		all = append(all, every)
	}
	for n := range runs {
		all = append(all, ofInstance(&runs[n], have[n])...)
	}
	for n := range all {
		all[n].Place = place
		if place.Device != "" {
			all[n].Value += deviceMark + place.Device
			all[n].Display = strings.Replace(all[n].Display, Prefix, Prefix+" "+place.Device, 1)
		}
	}
	return all, nil
}

// ofInstance returns the entries of an instance and of its interfaces.
func ofInstance(i *instance.Info, have []capture.Interface) []Interface {
	shown := i.Name
	if i.Pod != nil {
		shown = i.Pod.String()
	}
	whole := Interface{
		Value: Prefix + "-" + i.Name, Display: fmt.Sprintf("lklrun %s: all interfaces", shown),
		Instances: []string{i.Name}, LinkType: capture.LinkTypeEthernet,
	}
	if len(have) > 0 && !slices.ContainsFunc(have, func(i capture.Interface) bool { return i.LinkType != capture.LinkTypeRaw && !i.Loopback }) {
		whole.LinkType = capture.LinkTypeRaw
	}
	all := []Interface{whole}
	for _, i := range have {
		text := fmt.Sprintf("lklrun %s: %s", shown, i.Name)
		for _, a := range i.Addrs {
			if a.Addr().Is4() || !a.Addr().IsLinkLocalUnicast() {
				text += " " + a.String()
			}
		}
		all = append(all, Interface{
			Value: whole.Value + "-" + i.Name, Display: text,
			Instances: whole.Instances, Device: i.Name, LinkType: i.LinkType,
		})
	}
	return all
}

// devices queries the interfaces of a stack. It returns nil if the stack does not
// answer.
func devices(ctx context.Context, info *instance.Info) []capture.Interface {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	conn, err := stackconn.Dial(ctx, info.Socket())
	if err != nil {
		return nil
	}
	defer conn.Close()
	all, err := packets.New(conn).Interfaces(ctx)
	if err != nil {
		return nil
	}
	return all
}

// Find returns the interface with the given value.
func Find(all []Interface, value string) (Interface, error) {
	for _, i := range all {
		if i.Value == value {
			return i, nil
		}
	}
	return Interface{}, fmt.Errorf("--extcap-interface %q: no such instance or interface is running", value)
}

// Devices returns the names of the interfaces that an entry for several interfaces
// covers.
func Devices(all []Interface, of Interface) []string {
	var names []string
	for _, i := range all {
		if i.Device != "" && i.Place == of.Place && slices.Contains(of.Instances, i.Instances[0]) && !slices.Contains(names, i.Device) {
			names = append(names, i.Device)
		}
	}
	slices.Sort(names)
	return names
}
