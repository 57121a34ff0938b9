package azure

import (
	"bytes"
	_ "embed"
)

//go:embed estate/shop.json
var shop []byte

// Access to the subscription of Sample. They open nothing but the simulator.
const (
	SampleTenant       = "11111111-2222-4333-8444-555555555555"
	SampleSubscription = "aaaaaaaa-0000-4000-8000-000000000001"
	SampleClientID     = "cccccccc-0000-4000-8000-000000000001"
	SampleSecret       = "shopSecretForTheSimulatorOnly0000000001"
	SampleIdentity     = "cccccccc-0000-4000-8000-000000000002" // client id of a managed identity
	SampleLocation     = "westeurope"
	SampleGroup        = "shop"
)

// Sample is a small shop: in westeurope a virtual network with web, app and bastion machines, peered with
// one of databases, and one machine in northeurope. Every machine has a security group that is wide open
// inside.
func Sample() Estate {
	e, err := ParseEstate(bytes.NewReader(shop))
	if err != nil {
		panic(err) // the file is part of the program, and a test parses it
	}
	return e
}
