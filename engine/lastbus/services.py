"""Services around a bus: flows that are suspended until an event resumes them. `docs/SERVICES.md` tells the story."""

from lastbus._errors import FlowExecutionException as FlowExecutionException
from lastbus._model.execution import ExecutionState as ExecutionState
from lastbus._model.task import FlowTask as FlowTask
from lastbus._ports.directory import ServiceDirectory as ServiceDirectory
from lastbus._ports.executions import ExecutionStorage as ExecutionStorage
from lastbus._ports.queue import DeadLetter as DeadLetter
from lastbus._ports.queue import Delivery as Delivery
from lastbus._ports.queue import TaskQueue as TaskQueue
from lastbus._services.bus import StoringBus as StoringBus
from lastbus._services.filter import EventFilter as EventFilter
from lastbus._services.flow import EventNode as EventNode
from lastbus._services.flow import ExecutionContext as ExecutionContext
from lastbus._services.flow import Flow as Flow
from lastbus._services.flow import Step as Step
from lastbus._services.reconciler import EventReconciler as EventReconciler
from lastbus._services.registry import ServiceInfo as ServiceInfo
from lastbus._services.registry import ServiceRegistry as ServiceRegistry
from lastbus._services.strategy import DistributedStrategy as DistributedStrategy
from lastbus._services.timeouts import SubscriptionTimeoutChecker as SubscriptionTimeoutChecker
from lastbus._services.worker import FlowWorker as FlowWorker
from lastbus._services.worker import start_flow as start_flow
