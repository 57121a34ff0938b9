"""Drives a simulated Azure as a person with a script would; prints done at the end."""

import os

from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.identity import ClientSecretCredential
from azure.mgmt.compute import ComputeManagementClient
from azure.mgmt.network import NetworkManagementClient
from azure.mgmt.resource import ResourceManagementClient, SubscriptionClient

endpoint, subscription = os.environ["ENDPOINT"], os.environ["SUBSCRIPTION"]
authority = endpoint.removeprefix("https://")
scopes = ["https://management.core.windows.net//.default"]


def credential(secret):
    return ClientSecretCredential(
        os.environ["TENANT"], os.environ["CLIENT"], secret, authority=authority, instance_discovery=False
    )


def same(what, got, want):
    assert got == want, f"{what}: {got!r}, want {want!r}"


def refused(what, code, call):
    try:
        call()
    except HttpResponseError as e:
        same(what, e.error.code, code)
        return
    raise AssertionError(f"{what}: not refused")


args = dict(base_url=endpoint, credential_scopes=scopes, polling_interval=1)
try:
    wrong = NetworkManagementClient(credential("guess"), subscription, **args)
    list(wrong.virtual_networks.list_all())
    raise AssertionError("a wrong secret: not refused")
except ClientAuthenticationError as e:
    assert "AADSTS7000215" in str(e), e

cred = credential(os.environ["SECRET"])
network = NetworkManagementClient(cred, subscription, **args)
compute = ComputeManagementClient(cred, subscription, **args)
resources = ResourceManagementClient(cred, subscription, **args)
subscriptions = SubscriptionClient(cred, base_url=endpoint, credential_scopes=scopes)

same("subscriptions", [s.subscription_id for s in subscriptions.subscriptions.list()], [subscription])
same("locations", [x.name for x in subscriptions.subscriptions.list_locations(subscription)], ["westeurope", "northeurope"])
same("groups", sorted(g.name for g in resources.resource_groups.list()), ["reports", "shop"])
same("machines", len(list(compute.virtual_machines.list_all())), 10)
same("interfaces", len(list(network.network_interfaces.list_all())), 10)
same("machines of a group", [m.name for m in compute.virtual_machines.list("reports")], ["reports-1"])
view = compute.virtual_machines.get("shop", "web-1", expand="instanceView").instance_view
same("power", view.statuses[-1].code, "PowerState/running")

resources.resource_groups.create_or_update("py", {"location": "westeurope"})
asg = network.application_security_groups.begin_create_or_update("py", "asg", {"location": "westeurope"}).result()
same("a group's state", asg.provisioning_state, "Succeeded")
pods = dict(
    name="pods", priority=100, direction="Inbound", access="Allow", protocol="Tcp", source_address_prefix="10.244.0.0/16",
    source_port_range="*", destination_application_security_groups=[{"id": asg.id}], destination_port_ranges=["8443", "9000-9010"],
)
nsg = network.network_security_groups.begin_create_or_update(
    "py", "nsg", {"location": "westeurope", "tags": {"by": "python"}, "security_rules": [pods]}
).result()
same("its rules", [r.name for r in nsg.security_rules], ["pods"])
same("its default rules", len(nsg.default_security_rules), 6)
refused("the same priority twice", "SecurityRuleConflict", lambda: network.security_rules.begin_create_or_update(
    "py", "nsg", "other", dict(pods, name="other")).result())
refused("an old etag", "PreconditionFailed", lambda: network.network_security_groups.begin_create_or_update(
    "py", "nsg", nsg, headers={"If-Match": 'W/"old"'}).result())
network.security_rules.begin_create_or_update("py", "nsg", "second", dict(pods, name="second", priority=200)).result()
same("rules after one more", [r.name for r in network.security_rules.list("py", "nsg")], ["pods", "second"])
network.security_rules.begin_delete("py", "nsg", "second").result()

subnet = network.subnets.get("shop", "shop", "private")
nic = network.network_interfaces.begin_create_or_update("py", "py-nic", {
    "location": "westeurope", "network_security_group": {"id": nsg.id},
    "ip_configurations": [{"name": "one", "subnet": {"id": subnet.id}, "application_security_groups": [{"id": asg.id}]}],
}).result()
same("an address is made up", nic.ip_configurations[0].private_ip_address.startswith("10.40.2."), True)
compute.virtual_machines.begin_create_or_update("py", "py", {
    "location": "westeurope", "hardware_profile": {"vm_size": "Standard_B2s"},
    "network_profile": {"network_interfaces": [{"id": nic.id, "primary": True}]},
}).result()
same("its machine", network.network_interfaces.get("py", "py-nic").virtual_machine.id.split("/")[-1], "py")
refused("a group in use", "InUseNetworkSecurityGroupCannotBeDeleted", lambda: network.network_security_groups.begin_delete("py", "nsg").result())
refused("an interface in use", "NicInUse", lambda: network.network_interfaces.begin_delete("py", "py-nic").result())

compute.virtual_machines.begin_power_off("shop", "web-2").result()
same("stopped", compute.virtual_machines.instance_view("shop", "web-2").statuses[-1].code, "PowerState/stopped")
tags = network.network_security_groups.update_tags("py", "nsg", {"tags": {"by": "hand"}}).tags
same("tags", tags, {"by": "hand"})
network.application_security_groups.begin_create_or_update("py", "gone", {"location": "westeurope"}).result()
network.application_security_groups.begin_delete("py", "gone").result()
try:
    network.application_security_groups.get("py", "gone")
    raise AssertionError("deleted, and there")
except ResourceNotFoundError:
    pass
print("done")
